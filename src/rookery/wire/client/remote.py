"""The common part of all transports to a server at a URL: requests, credentials and challenges."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urljoin

from rookery.wire.client.transport import TransportClosed
from rookery.wire.http_client.client import HttpClient
from rookery.wire.http_client.connection import HttpResponse
from rookery.wire.http_client.request import HttpRequestWriter, strip_userinfo

EVENT_STREAM = "text/event-stream"
_CHALLENGE_STATUSES = (401, 403)
# Only these redirects keep the method and the body.
_FOLLOWED_STATUSES = (307, 308)
_MAX_REDIRECTS = 5


# The response of a request that was sent without a task, and its Authorization header.
PostedHttp = tuple[HttpResponse, str | None]


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
        self,
        requests: HttpRequestWriter,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        posted: PostedHttp | None = None,
    ) -> HttpResponse:
        """Send one request, and once more if credentials were refused and there are new ones.

        Redirects are followed only within the origin, so our headers and messages go to no other server. A request
        that was `posted` is not sent again without such a reason.
        """
        first, sent = posted or (None, self.credentials.header() if self.credentials is not None else None)
        response = await self._send(requests, method, headers, body, sent, first)
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
        first: HttpResponse | None = None,
    ) -> HttpResponse:
        if authorization is not None:
            headers = {**headers, "Authorization": authorization}
        # These methods are idempotent.
        idempotent = method in ("GET", "DELETE")
        for _ in range(_MAX_REDIRECTS):
            response = first or await self.http.send(
                requests.origin, requests.write(method, headers, body), idempotent=idempotent
            )
            first = None
            response.url = requests.url
            location = response.header(b"location")
            if response.status not in _FOLLOWED_STATUSES or not location:
                return response
            redirected = requests.at(location)
            if redirected is None:
                return response
            response.discard_rest()
            requests = redirected
        response = await self.http.send(requests.origin, requests.write(method, headers, body), idempotent=idempotent)
        response.url = requests.url
        return response


def read_challenge(response: HttpResponse) -> str | None:
    """Return the challenge of a server that requires credentials, else None. A 403 without one requires none."""
    if response.status not in _CHALLENGE_STATUSES:
        return None
    challenge = response.header(b"www-authenticate")
    return challenge or "" if response.status == 401 else challenge


def describe_redirect(response: HttpResponse, url: str) -> str | None:
    """Return why a redirect of the server at `url` was not followed, None if the response is not a redirect."""
    location = response.header(b"location")
    if location is None or not 300 <= response.status < 400:
        return None
    # What it says may contain the credentials of the URL, or others.
    try:
        shown = strip_userinfo(urljoin(url, location))
    except ValueError:
        shown = location.rpartition("@")[2]
    if response.status not in _FOLLOWED_STATUSES:
        why = f"only redirects with status {' or '.join(map(str, _FOLLOWED_STATUSES))} are followed"
    elif HttpRequestWriter(url, {}).at(location) is None:
        why = "redirects to another origin are not followed"
    else:
        why = f"no more than {_MAX_REDIRECTS} redirects are followed"
    return f"the server redirects to {shown[:200]}; {why}"


def describe_error(error: Exception) -> str:
    """Return a description of a transport error, for people."""
    return f"{type(error).__name__}: {error}"
