"""The callback server of a login: one path on one local port, for one response of the browser."""

import asyncio
import contextlib
import html
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from rookery.system.errors import RookeryError

_PATH = "/callback"
_HOSTS = ("127.0.0.1", "localhost", "::1")
_READ_SECONDS = 10.0
_MAX_HEAD_BYTES = 32_768
_BROKEN = (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
_PAGE = """<!doctype html><meta charset="utf-8"><title>Rookery</title><p>{}</p>"""
_HEADERS = (
    "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
)


@dataclass(frozen=True)
class RedirectAddress:
    """A redirect address of a native program (RFC 8252): a loopback host and a port, 0 for any."""

    host: str = "127.0.0.1"
    port: int = 0
    path: str = _PATH

    @classmethod
    def parse(cls, url: str) -> "RedirectAddress":
        """Parse a redirect address. Raise if it is not an address of this machine."""
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname not in _HOSTS or parts.query or parts.fragment:
            raise RookeryError(
                "invalid-input",
                "the redirect address of a sign-in must be on this machine, such as http://127.0.0.1:19876/callback",
                "correct redirectUri, or remove it",
            )
        return cls(parts.hostname, parts.port or 80, parts.path or "/")

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"


@dataclass(frozen=True)
class AuthorizationResponse:
    """The response that the browser delivered."""

    code: str
    state: str
    iss: str | None


class CallbackServer:
    """Listens from `open` to `close`. A request without the expected state is rejected and changes nothing."""

    def __init__(self, address: RedirectAddress) -> None:
        self.address = address
        self._state: str | None = None
        self._server: asyncio.Server | None = None
        self._response: asyncio.Future[AuthorizationResponse] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        address = "::1" if self.address.host == "::1" else "127.0.0.1"
        try:
            self._server = await asyncio.start_server(self._serve, address, self.address.port, limit=_MAX_HEAD_BYTES)
        except OSError as error:
            raise RookeryError(
                "sign-in-failed",
                f"the sign-in cannot receive the redirect: port {self.address.port} is in use ({error.strerror})",
                "stop the program that uses it, or choose another callbackPort",
            ) from None
        port = self._server.sockets[0].getsockname()[1]
        self.address = RedirectAddress(self.address.host, port, self.address.path)

    def expect_state(self, state: str) -> None:
        """Set the state that the response must contain."""
        self._state = state

    async def wait_for_response(self) -> AuthorizationResponse:
        """Wait for the response. Raise if the sign-in was refused."""
        return await self._response

    def accept(self, url: str) -> str | None:
        """Accept the address that the browser was redirected to. Return why it is rejected, or None."""
        try:
            parts = urlsplit(url.strip())
            query = parse_qs(parts.query, max_num_fields=20)
        except ValueError:
            return "it is not an address"
        if parts.path != self.address.path:
            return f"it does not begin with {self.address.url}"
        if any(len(values) != 1 for values in query.values()):
            return "it contains a parameter twice"
        fields = {name: values[0] for name, values in query.items()}
        if self._state is None or fields.get("state") != self._state:
            return "it does not belong to this sign-in, or was used before"
        if "error" not in fields and not fields.get("code"):
            return "it contains neither a code nor an error"
        self._state = None
        if self._response.done():
            return "it was used before"
        if "error" in fields:
            reason = f"{fields['error'][:100]} {fields.get('error_description', '')[:200]}".strip()
            message = f"the sign-in was refused: {reason}"
            self._response.set_exception(RookeryError("sign-in-failed", message, "try again, or ask its operator"))
        else:
            self._response.set_result(AuthorizationResponse(fields["code"], fields["state"], fields.get("iss")))
        return None

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if not self._response.done():
            self._response.cancel()
        elif not self._response.cancelled():
            self._response.exception()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(*_BROKEN):
            async with asyncio.timeout(_READ_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                status, text = self._handle_request(head)
                body = _PAGE.format(html.escape(text)).encode()
                writer.write(f"HTTP/1.1 {status}\r\n{_HEADERS}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        writer.close()

    def _handle_request(self, head: str) -> tuple[str, str]:
        """Handle the head of a request, and return the status and the text of the response."""
        first, *lines = head.split("\r\n")
        method, _, rest = first.partition(" ")
        target = rest.partition(" ")[0]
        hosts = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("host:")]
        if hosts != [urlsplit(self.address.url).netloc]:
            return "400 Bad Request", "This is not the expected address."
        if target.partition("?")[0] != self.address.path:
            return "404 Not Found", "There is nothing here."
        if method != "GET":
            return "405 Method Not Allowed", "Only GET is supported here."
        if why := self.accept(target):
            return "400 Bad Request", f"Rookery rejected this response: {why}."
        return "200 OK", "Rookery received the response. You can close this window; the terminal shows the result."
