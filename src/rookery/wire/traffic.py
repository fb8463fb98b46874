"""What went over the endpoints of one workspace last, and which clients without a session use them."""

from collections import deque
from collections.abc import Callable

import msgspec

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.wire.jsonrpc import Id, Notification, Params, Request

KEPT = 100
SEEN_SECONDS = 60.0
# Whatever clients call themselves: more of them are not told apart.
_MOST_CLIENTS = 1_000
_LONGEST = 256

# Whose token it was, and what the client said of itself.
Who = tuple[str, bytes]
# A message of a client: when it came, its method, the tool's name, its id, and the bytes of its parameters. Neither
# arguments nor results are kept: they may be anything.
Came = tuple[float, str, str | None, Id | None, int]
# An answer: when it went, what it answers, its bytes, and the code of its error.
Went = tuple[float, Came, int, int]

_text = msgspec.json.Decoder(str)


class Line(msgspec.Struct):
    """One message as it is told; `bytes` are those of the parameters, or of the whole answer."""

    time: float
    direction: str
    method: str
    tool: str | None
    id: Id | None
    bytes: int
    error: int | None = None
    ms: float | None = None


class Traffic:
    """`changed` is called when a client without a session comes that was not there just now."""

    def __init__(self, changed: Callable[[], None] = lambda: None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.changed = changed
        self._now, self._wall = clock.monotonic, clock.wall
        self._messages: deque[Came | Went] = deque(maxlen=KEPT)
        self._seen: dict[Who, float] = {}

    def came(self, request: Request, params: Params) -> Came:
        """Note a call; every one passes here and at `went`, which may cost next to nothing."""
        id_, method, name, tool = request.id, request.method, params.get("name"), None
        if type(id_) is not int or len(method) > _LONGEST:
            id_, method = _cut(id_), method[:_LONGEST]
        if name is not None and len(name) < _LONGEST:
            # Written anew: a part of a message would hold the whole of it.
            try:  # noqa: SIM105 - a context manager costs more than all the rest
                tool = _text.decode(name)
            except msgspec.DecodeError:
                pass
        made = self._now(), method, tool, id_, len(request.params)
        self._messages.append(made)
        return made

    def went(self, to: Came, answer: bytes, code: int) -> None:
        """Note the answer to it, with the code of its error or 0."""
        self._messages.append((self._now(), to, len(answer), code))

    def mention(self, message: Request | Notification, answer: bytes | None, code: int) -> None:
        """Note what the wire itself answers, or nobody."""
        id_ = _cut(message.id) if isinstance(message, Request) else None
        came = self._now(), message.method[:_LONGEST], None, id_, len(message.params)
        self._messages.append(came)
        if answer is not None:
            self.went(came, answer, code)

    def saw(self, who: Who) -> None:
        """A client without a session is here."""
        if who not in self._seen:
            if len(self._seen) >= _MOST_CLIENTS and len(self.present()) >= _MOST_CLIENTS:
                return
            self.changed()
        self._seen[who] = self._now()

    def present(self) -> set[Who]:
        """The clients without a session that were here in the last minute."""
        since = self._now() - SEEN_SECONDS
        self._seen = {who: at for who, at in self._seen.items() if at > since}
        return set(self._seen)

    def lines(self) -> list[Line]:
        """The last messages, in the order they went."""
        offset = self._wall() - self._now()
        return [_line(one, offset) for one in self._messages]


def _line(one: Came | Went, offset: float) -> Line:
    if len(one) == 5:
        at, method, tool, id_, size = one
        return Line(round(at + offset, 6), "in", method, _tool(method, tool), id_, size)
    at, (began, method, tool, id_, _), size, code = one
    ms = round((at - began) * 1000, 3)
    return Line(round(at + offset, 6), "out", "answer", _tool(method, tool), id_, size, code or None, ms)


def _cut(id_: Id) -> Id:
    return id_[:_LONGEST] if isinstance(id_, str) else id_


def _tool(method: str, name: str | None) -> str | None:
    return name if method == "tools/call" else None
