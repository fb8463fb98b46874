"""Messages that are framed by lines."""

from collections.abc import Iterator


class Lines:
    """Cuts what comes into lines, without their ends. One that is too long is told as None, once, and not kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """The lines that are whole now; empty ones are none."""
        *whole, rest = data.split(b"\n")
        for part in whole:
            yield from self._add(part)
            if self._rest and not self._skipping:
                yield bytes(self._rest.removesuffix(b"\r"))
            self._rest.clear()
            self._skipping = False
        yield from self._add(rest)

    def _add(self, part: bytes) -> Iterator[None]:
        if self._skipping:
            return
        self._rest += part
        if len(self._rest) > self._limit:
            self._rest.clear()
            self._skipping = True
            yield None


def one_line(message: bytes) -> bytes:
    """The same message for a wire that frames by lines: a line break in JSON never stands inside a string."""
    # Not with `in`, which tries first whether it is asked for a number.
    broken = message.find(b"\n") >= 0 or message.find(b"\r") >= 0
    return message.replace(b"\n", b" ").replace(b"\r", b" ") if broken else message
