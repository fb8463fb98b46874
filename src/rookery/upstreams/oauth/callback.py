"""Where the browser comes back to: one path of one port of this machine, for one answer."""

import asyncio
import contextlib
import html
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from rookery.system.errors import RookeryError

_PATH = "/callback"
_HOSTS = ("127.0.0.1", "localhost", "::1")
_READ_SECONDS = 10.0
_LONGEST_HEAD = 32_768
_BROKEN = (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
_PAGE = """<!doctype html><meta charset="utf-8"><title>Rookery</title><p>{}</p>"""
_HEADERS = (
    "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
)


@dataclass(frozen=True)
class Place:
    """A redirect address of a native program (RFC 8252): this machine, and a port, 0 for any."""

    host: str = "127.0.0.1"
    port: int = 0
    path: str = _PATH

    @classmethod
    def of(cls, url: str) -> "Place":
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname not in _HOSTS or parts.query or parts.fragment:
            raise RookeryError(
                "invalid-input",
                "the redirect address of a sign-in is one of this machine, such as http://127.0.0.1:19876/callback",
                "correct redirectUri, or leave it out",
            )
        return cls(parts.hostname, parts.port or 80, parts.path or "/")

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"


@dataclass(frozen=True)
class Returned:
    """What the browser brought."""

    code: str
    state: str
    iss: str | None


class Callback:
    """Listens from `open` to `close`. What does not bring the expected state is turned away and changes nothing."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._state: str | None = None
        self._server: asyncio.Server | None = None
        self._returned: asyncio.Future[Returned] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        address = "::1" if self.place.host == "::1" else "127.0.0.1"
        try:
            self._server = await asyncio.start_server(self._serve, address, self.place.port, limit=_LONGEST_HEAD)
        except OSError as error:
            raise RookeryError(
                "sign-in-failed",
                f"the browser cannot come back: port {self.place.port} of this machine is taken ({error.strerror})",
                "end what uses it, or choose another callbackPort",
            ) from None
        port = self._server.sockets[0].getsockname()[1]
        self.place = Place(self.place.host, port, self.place.path)

    def expect(self, state: str) -> None:
        self._state = state

    async def returned(self) -> Returned:
        return await self._returned

    def take(self, url: str) -> str | None:
        """An address that the browser was sent to; why it is not taken, None if it is."""
        try:
            parts = urlsplit(url.strip())
            given = parse_qs(parts.query, max_num_fields=20)
        except ValueError:
            return "it is no address"
        if parts.path != self.place.path:
            return f"it does not begin with {self.place.url}"
        if any(len(values) != 1 for values in given.values()):
            return "something stands twice in it"
        found = {name: values[0] for name, values in given.items()}
        if self._state is None or found.get("state") != self._state:
            return "it does not belong to this sign-in, or was used before"
        if "error" not in found and not found.get("code"):
            return "it has neither a code nor an error in it"
        self._state = None
        if self._returned.done():
            return "it was used before"
        if "error" in found:
            told = f"{found['error'][:100]} {found.get('error_description', '')[:200]}".strip()
            refused = f"the sign-in was refused: {told}"
            self._returned.set_exception(RookeryError("sign-in-failed", refused, "try again, or ask who runs it"))
        else:
            self._returned.set_result(Returned(found["code"], found["state"], found.get("iss")))
        return None

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if not self._returned.done():
            self._returned.cancel()
        elif not self._returned.cancelled():
            self._returned.exception()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(*_BROKEN):
            async with asyncio.timeout(_READ_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                status, told = self._judge(head)
                body = _PAGE.format(html.escape(told)).encode()
                writer.write(f"HTTP/1.1 {status}\r\n{_HEADERS}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        writer.close()

    def _judge(self, head: str) -> tuple[str, str]:
        first, *lines = head.split("\r\n")
        method, _, rest = first.partition(" ")
        target = rest.partition(" ")[0]
        hosts = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("host:")]
        if hosts != [urlsplit(self.place.url).netloc]:
            return "400 Bad Request", "This is not the address that was asked for."
        if target.partition("?")[0] != self.place.path:
            return "404 Not Found", "There is nothing here."
        if method != "GET":
            return "405 Method Not Allowed", "There is nothing to send here."
        if why := self.take(target):
            return "400 Bad Request", f"Rookery does not take this answer: {why}."
        return "200 OK", "Rookery has the answer. You can close this window; the terminal tells how it went."
