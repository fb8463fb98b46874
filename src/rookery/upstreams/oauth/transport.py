"""The only way by which the SDK reaches anybody while it signs in: every address is checked, and then connected to."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2

from rookery.system.errors import RookeryError
from rookery.upstreams.signin.addresses import Rules

_SECONDS = 20.0
_LONGEST = 1_000_000
# The extension of the one request that is never sent: it stands for the request that the server refused.
REFUSED = "rookery.refused"

# Told of every request that was sent: what, to where, and what came of it.
Tell = Callable[[str, str, bool], None]
# May refuse or correct a request before it is sent, and an answer before the SDK sees it.
Before = Callable[[httpx2.Request], None]
After = Callable[[httpx2.Request, int, bytes], bytes]


class Guarded(httpx2.AsyncBaseTransport):
    """Answers the first request with `refusal`, as the server did, and says yes to it once it comes again."""

    def __init__(self, rules: Rules, refusal: httpx2.Response, tell: Tell, before: Before, after: After) -> None:
        self._rules = rules
        self._refusals = [refusal]
        self._tell, self._before, self._after = tell, before, after
        # The certificates that the daemon trusts too, and no proxy, which would connect to wherever it likes.
        # A connection is known by its number only: kept, it would carry what is for one name to whoever proved another.
        self._inner = httpx2.AsyncHTTPTransport(
            verify=ssl.create_default_context(), trust_env=False, limits=httpx2.Limits(max_keepalive_connections=0)
        )
        # What was found for a host counts to the end: it cannot become another one between the check and the use.
        self._found: dict[tuple[str, int | None], list[str]] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if REFUSED in request.extensions:
            return self._refusals.pop() if self._refusals else httpx2.Response(204)
        self._before(request)
        what, url = f"{request.method} {_shown(request.url)}", str(request.url)
        try:
            async with asyncio.timeout(_SECONDS):
                status, headers, body = await self._send(request, await self._addresses(url))
        except RookeryError as error:
            self._tell(what, error.message, False)
            raise
        except (httpx2.HTTPError, OSError, TimeoutError) as error:
            why = f"no answer within {_SECONDS:g} s" if isinstance(error, TimeoutError) else str(error)
            self._tell(what, why, False)
            raise RookeryError("sign-in-failed", f"{what}: {why}", "try again later") from None
        self._tell(what, f"HTTP {status}", status < 400)
        content = self._after(request, status, body)
        kept = [(name, value) for name, value in headers if name.lower() not in ("content-length", "content-encoding")]
        return httpx2.Response(status, headers=kept, content=content)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _addresses(self, url: str) -> list[str]:
        parts = urlsplit(url)
        key = parts.hostname or "", parts.port
        self._rules.check(url)
        if key not in self._found:
            self._found[key] = await self._rules.addresses(url)
        return self._found[key]

    async def _send(self, request: httpx2.Request, addresses: list[str]) -> tuple[int, list[tuple[str, str]], bytes]:
        failure: httpx2.HTTPError | None = None
        for address in addresses:
            try:
                return await self._send_to(request, address)
            except httpx2.ConnectError as error:
                failure = failure or error
        assert failure is not None
        raise failure

    async def _send_to(self, request: httpx2.Request, address: str) -> tuple[int, list[tuple[str, str]], bytes]:
        """To the very address that was checked; its certificate still has to be that of the host."""
        extensions: dict[str, Any] = {**request.extensions, "sni_hostname": request.url.host}
        headers = request.headers.copy()
        headers["Accept-Encoding"] = "identity"
        pinned = httpx2.Request(
            request.method,
            request.url.copy_with(host=address.partition("%")[0]),
            headers=headers,
            content=await request.aread(),
            extensions=extensions,
        )
        answer = await self._inner.handle_async_request(pinned)
        try:
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise RookeryError("sign-in-failed", f"{_shown(request.url)} answered in an encoding nobody asked for")
            body = b""
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > _LONGEST:
                    told = f"{_shown(request.url)} answered more than {_LONGEST:,} bytes"
                    raise RookeryError("sign-in-failed", told)
        finally:
            await answer.aclose()
        return answer.status_code, answer.headers.multi_items(), body


def _shown(url: httpx2.URL) -> str:
    return str(url.copy_with(query=None, fragment=None))
