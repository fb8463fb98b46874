"""The user of the conformance client: opens every URL and always consents."""

import asyncio
import http.client
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from rookery.upstreams.config.dialects import define_server
from rookery.upstreams.oauth.manager import SignInManager
from rookery.wire.client.remote import Credentials
from rookery.wire.http_client.proxy import ProxySettings

# Who is asked more often than this begins to wonder.
_MOST = 3
_SECONDS = 120
# The document that the suite knows for a client that is identified by its address.
_DOCUMENT = "https://conformance-test.local/client-metadata.json"


class Person:
    """The user of a client. `context` is what the suite passes to the client, such as a registered client."""

    def __init__(self, url: str, context: Mapping[str, Any]) -> None:
        known = {"clientId": context.get("client_id"), "clientSecret": context.get("client_secret")}
        self._definition = define_server(
            "server", {"url": url, "oauth": known | {"clientMetadataUrl": _DOCUMENT}}, "suite"
        )
        self._folder = tempfile.TemporaryDirectory()
        self._signins = SignInManager(Path(self._folder.name), Spawner(new_id()), ProxySettings())
        self._signed_in = 0

    @property
    def credentials(self) -> Credentials | None:
        return self._signins.credentials(self._definition)

    @property
    def patient(self) -> bool:
        return self._signed_in < _MOST

    async def sign_in(self) -> None:
        self._signed_in += 1
        attempt = await self._signins.login(self._definition, _SECONDS)
        asked = await attempt.wait_for_prompt()
        back = await asyncio.to_thread(_opened, asked.url)
        assert back is not None
        await asyncio.to_thread(_opened, back)
        await attempt.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._signins.close()
        self._folder.cleanup()


def _opened(url: str) -> str | None:
    """Return where a page redirects to. Each scenario is a process, so a larger HTTP library would cost too much."""
    place = urlsplit(url)
    browser = http.client.HTTPConnection(place.netloc, timeout=_SECONDS)
    try:
        browser.request("GET", f"{place.path}?{place.query}")
        answer = browser.getresponse()
        answer.read()
        return answer.headers["Location"]
    finally:
        browser.close()
