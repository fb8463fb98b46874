"""The common part of all transports to a server at a URL: requests, credentials and challenges."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rookery.wire.client.transport import TransportClosed
from rookery.wire.http_client.client import HttpClient
from rookery.wire.http_client.connection import HttpResponse
from rookery.wire.http_client.request import HttpRequestWriter

EVENT_STREAM = "text/event-stream"
_CHALLENGE_STATUSES = (401, 403)


class TransportBroken(TransportClosed):
    """The connection broke. The lost data may be available over a new one."""


class Credentials(Protocol):
    """The credentials for one server."""

    def header(self) -> str | None:
        """Return the Authorization header of the next request, or None."""
        ...

    async def try_renew(self, sent: str | None, status: int, challenge: str) -> bool:
        """Handle a refusal of the header that was `sent`.

        Return whether there is a new header now, with which the request can be repeated.
        """
        ...


@dataclass
class RemoteTransport:
    """The base of transports to a URL. The application shares one `http` client, with its connections, among them."""

    http: HttpClient
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    credentials: Credentials | None = None
    close_reason: str | None = field(default=None, init=False)
    challenge: str | None = field(default=None, init=False)
    uses_headers: bool = field(default=True, init=False)

    async def exchange(
        self, requests: HttpRequestWriter, method: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        """Send one request, and once more if credentials were refused and there are new ones.

        Redirects are not followed, so our headers and messages go to no other server.
        """
        sent = self.credentials.header() if self.credentials is not None else None
        response = await self._send(requests, method, headers, body, sent)
        self.challenge = read_challenge(response)
        if self.challenge is not None and self.credentials is not None:
            # The server did nothing of the refused request.
            if not await self.credentials.try_renew(sent, response.status, self.challenge):
                return response
            response.close()
            response = await self._send(requests, method, headers, body, self.credentials.header())
            self.challenge = read_challenge(response)
        return response

    async def _send(
        self,
        requests: HttpRequestWriter,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None,
        authorization: str | None,
    ) -> HttpResponse:
        if authorization is not None:
            headers = {**headers, "Authorization": authorization}
        # These methods are idempotent.
        return await self.http.send(
            requests.origin, requests.write(method, headers, body), idempotent=method in ("GET", "DELETE")
        )


def read_challenge(response: HttpResponse) -> str | None:
    """Return the challenge of a server that requires credentials, else None. A 403 without one requires none."""
    if response.status not in _CHALLENGE_STATUSES:
        return None
    challenge = response.header(b"www-authenticate")
    return challenge or "" if response.status == 401 else challenge


def describe_error(error: Exception) -> str:
    """Return a description of a transport error, for people."""
    return f"{type(error).__name__}: {error}"
