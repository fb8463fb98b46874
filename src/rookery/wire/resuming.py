"""The streams of one session, of which a client that broke off can have the rest."""

import itertools

from rookery.wire.jsonrpc import INVALID_PARAMS, WireError
from rookery.wire.streams import KEPT_BYTES, Stream

_ENDED_KEPT = 8
# More than the number of any event has.
_DIGITS = 18


class Streams:
    """Those that run; of those that have ended, only the newest few, and together no more than one may keep."""

    __slots__ = ("_known", "_numbers")

    def __init__(self) -> None:
        self._known: dict[str, Stream] = {}
        self._numbers = itertools.count(1)

    def new(self) -> Stream:
        self._forget()
        name = f"s{next(self._numbers)}"
        self._known[name] = made = Stream(name)
        return made

    def found(self, event_id: str) -> tuple[Stream, int]:
        """The stream that an event id belongs to, and the place in it."""
        name, _, number = event_id.rpartition("-")
        stream = self._known.get(name)
        position = int(number) if number.isdecimal() and len(number) <= _DIGITS else None
        if stream is None or position is None or not stream.has_been_at(position):
            raise WireError(INVALID_PARAMS, "Last-Event-ID belongs to no stream that is still known")
        if not stream.keeps(position):
            raise WireError(INVALID_PARAMS, "more has come since Last-Event-ID than is kept; begin a new stream")
        return stream, position

    def end(self) -> None:
        for stream in self._known.values():
            stream.end()

    def _forget(self) -> None:
        ended = [(name, stream.size) for name, stream in self._known.items() if stream.ended]
        size = 0
        for newer, (name, more) in enumerate(reversed(ended)):
            size += more
            if newer >= _ENDED_KEPT or (newer and size > KEPT_BYTES):
                del self._known[name]
