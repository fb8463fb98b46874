"""What all channels to a server at a URL have in common."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rookery.wire.channel import ChannelClosed
from rookery.wire.http_answer import Answer
from rookery.wire.http_client import HttpClient
from rookery.wire.http_request import Requests

EVENTS = "text/event-stream"
_WHO = (401, 403)


class Broken(ChannelClosed):
    """The connection broke; what it carried may be had over another one."""


@dataclass
class Remote:
    """`http` is made once by the application and shared: so are its connections."""

    http: HttpClient
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    gone: str | None = field(default=None, init=False)
    challenge: str | None = field(default=None, init=False)
    uses_headers: bool = field(default=True, init=False)

    async def exchange(
        self, requests: Requests, method: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Answer:
        """One request. Redirects are not followed: our headers and messages go nowhere else."""
        # Said twice, these do no more than once.
        answer = await self.http.send(
            requests.place, requests.write(method, headers, body), harmless=method in ("GET", "DELETE")
        )
        self.challenge = _challenge(answer) if answer.status in _WHO else None
        return answer


def _challenge(answer: Answer) -> str | None:
    """Who forbids something without a word about credentials does not want any."""
    given = answer.header(b"www-authenticate")
    return given or "" if answer.status == 401 else given


def told(error: Exception) -> str:
    """What went wrong on the way, for people."""
    return f"{type(error).__name__}: {error}"
