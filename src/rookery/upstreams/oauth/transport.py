"""The HTTP transport of the SDK: each address is checked, and the checked address is connected to."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2

from rookery.system.errors import RookeryError
from rookery.upstreams.oauth.addresses import AddressRules
from rookery.wire.http_client.proxy import Proxy

_SECONDS = 20.0
_MAX_BODY_BYTES = 1_000_000
# Marks the one request that is never sent: it stands for the request that the server refused.
REFUSED_EXTENSION = "rookery.refused"

# Called for every request that was sent: method and address, result, and whether it succeeded.
RequestCallback = Callable[[str, str, bool], None]
# May refuse or correct a request before it is sent, and a response before the SDK reads it.
BeforeRequest = Callable[[httpx2.Request], None]
AfterResponse = Callable[[httpx2.Request, int, bytes], bytes]


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Responds to the marked request with `refusal` first and then with success, and sends all other requests."""

    def __init__(
        self,
        rules: AddressRules,
        refusal: httpx2.Response,
        on_request: RequestCallback,
        before: BeforeRequest,
        after: AfterResponse,
    ) -> None:
        self._rules = rules
        self._refusals = [refusal]
        self._on_request = on_request
        self._before = before
        self._after = after
        # The same certificates as in the daemon.
        self._ssl_context = ssl.create_default_context()
        # One for each proxy, and one without.
        self._inner: dict[Proxy | None, httpx2.AsyncHTTPTransport] = {}
        # The checked addresses of a host are kept, so that they cannot change between the check and the use.
        self._checked_addresses: dict[tuple[str, int | None], list[str]] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if REFUSED_EXTENSION in request.extensions:
            return self._refusals.pop() if self._refusals else httpx2.Response(204)
        self._before(request)
        what = f"{request.method} {_without_query(request.url)}"
        url = str(request.url)
        try:
            async with asyncio.timeout(_SECONDS):
                status, headers, body = await self._send(request, await self._addresses(url))
        except RookeryError as error:
            self._on_request(what, error.message, False)
            raise
        except (httpx2.HTTPError, OSError, TimeoutError) as error:
            why = f"no response within {_SECONDS:g} s" if isinstance(error, TimeoutError) else str(error)
            self._on_request(what, why, False)
            raise RookeryError("sign-in-failed", f"{what}: {why}", "try again later") from None
        self._on_request(what, f"HTTP {status}", status < 400)
        content = self._after(request, status, body)
        kept_headers = [
            (name, value) for name, value in headers if name.lower() not in ("content-length", "content-encoding")
        ]
        return httpx2.Response(status, headers=kept_headers, content=content)

    async def aclose(self) -> None:
        for transport in self._inner.values():
            await transport.aclose()

    def _transport(self, proxy: Proxy | None) -> httpx2.AsyncHTTPTransport:
        if proxy not in self._inner:
            credentials = {"Proxy-Authorization": proxy.authorization} if proxy and proxy.authorization else {}
            # Connections are pooled by IP address: a reused one could carry requests for one host name to a server
            # that proved to be another.
            self._inner[proxy] = httpx2.AsyncHTTPTransport(
                verify=self._ssl_context,
                trust_env=False,
                limits=httpx2.Limits(max_keepalive_connections=0),
                proxy=httpx2.Proxy(f"http://{proxy!r}", headers=credentials) if proxy is not None else None,
            )
        return self._inner[proxy]

    async def _addresses(self, url: str) -> list[str]:
        parts = urlsplit(url)
        key = parts.hostname or "", parts.port
        self._rules.check(url)
        if key not in self._checked_addresses:
            self._checked_addresses[key] = await self._rules.addresses(url)
        return self._checked_addresses[key]

    async def _send(self, request: httpx2.Request, addresses: list[str]) -> tuple[int, list[tuple[str, str]], bytes]:
        if (proxy := self._rules.proxy(str(request.url))) is not None:
            return await self._send_to(request, None, proxy)
        failure: httpx2.HTTPError | None = None
        for address in addresses:
            try:
                return await self._send_to(request, address, None)
            except httpx2.ConnectError as error:
                failure = failure or error
        assert failure is not None
        raise failure

    async def _send_to(
        self, request: httpx2.Request, address: str | None, proxy: Proxy | None
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Send a request to the checked address, or through a proxy, which finds the address itself.

        The certificate must be that of the host name.
        """
        extensions: dict[str, Any] = {**request.extensions, "sni_hostname": request.url.host}
        headers = request.headers.copy()
        headers["Accept-Encoding"] = "identity"
        pinned = httpx2.Request(
            request.method,
            request.url if address is None else request.url.copy_with(host=address.partition("%")[0]),
            headers=headers,
            content=await request.aread(),
            extensions=extensions,
        )
        response = await self._transport(proxy).handle_async_request(pinned)
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise RookeryError(
                    "sign-in-failed", f"{_without_query(request.url)} responded with an encoding that was not requested"
                )
            body = b""
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > _MAX_BODY_BYTES:
                    message = f"{_without_query(request.url)} sent more than {_MAX_BODY_BYTES:,} bytes"
                    raise RookeryError("sign-in-failed", message)
        finally:
            await response.aclose()
        return response.status_code, response.headers.multi_items(), body


def _without_query(url: httpx2.URL) -> str:
    return str(url.copy_with(query=None, fragment=None))
