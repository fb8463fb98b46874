"""What all channels to a server at a URL have in common."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rookery.wire.channel import ChannelClosed
from rookery.wire.http_answer import Answer
from rookery.wire.http_client import HttpClient
from rookery.wire.http_request import Requests

EVENTS = "text/event-stream"
_WHO = (401, 403)


class Broken(ChannelClosed):
    """The connection broke; what it carried may be had over another one."""


class Credentials(Protocol):
    """Who we are to one server."""

    def header(self) -> str | None:
        """The Authorization of the next request, None where there is none."""
        ...

    async def refused(self, sent: str | None, status: int, challenge: str) -> bool:
        """What was `sent` is not enough; whether there is another header now, with which to try again."""
        ...


@dataclass
class Remote:
    """`http` is made once by the application and shared: so are its connections."""

    http: HttpClient
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    credentials: Credentials | None = None
    gone: str | None = field(default=None, init=False)
    challenge: str | None = field(default=None, init=False)
    uses_headers: bool = field(default=True, init=False)

    async def exchange(
        self, requests: Requests, method: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Answer:
        """One request. Redirects are not followed: our headers and messages go nowhere else."""
        sent = self.credentials.header() if self.credentials is not None else None
        answer = await self._send(requests, method, headers, body, sent)
        self.challenge = challenge_of(answer)
        if self.challenge is not None and self.credentials is not None:
            # Nothing of the request was done.
            if not await self.credentials.refused(sent, answer.status, self.challenge):
                return answer
            answer.close()
            answer = await self._send(requests, method, headers, body, self.credentials.header())
            self.challenge = challenge_of(answer)
        return answer

    async def _send(
        self, requests: Requests, method: str, headers: Mapping[str, str], body: bytes | None, who: str | None
    ) -> Answer:
        if who is not None:
            headers = {**headers, "Authorization": who}
        # Said twice, these do no more than once.
        return await self.http.send(
            requests.place, requests.write(method, headers, body), harmless=method in ("GET", "DELETE")
        )


def challenge_of(answer: Answer) -> str | None:
    """What a server says that wants credentials. Who forbids something without a word about them wants none."""
    if answer.status not in _WHO:
        return None
    given = answer.header(b"www-authenticate")
    return given or "" if answer.status == 401 else given


def told(error: Exception) -> str:
    """What went wrong on the way, for people."""
    return f"{type(error).__name__}: {error}"
