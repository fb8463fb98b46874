"""HTTP to one OpenCode server: every request names the folder, carries the password and has a time limit."""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from rookery.agents.refusals import LOGS, refused
from rookery.system.errors import RookeryError
from rookery.wire.http_answer import Answer
from rookery.wire.http_client import HttpClient
from rookery.wire.http_request import Requests

# The first request to a folder loads plugins and more, which takes seconds on a busy machine.
ANSWER_SECONDS = 30.0
_USER = "opencode"

T = TypeVar("T")


@dataclass
class Link:
    """`url` has no path. `http` is made once by the application and shared."""

    http: HttpClient
    url: str
    directory: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        pair = base64.b64encode(f"{_USER}:{self.password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {pair}", "Content-Type": "application/json"}

    async def ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        session: str | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> T:
        """The answer, decoded as `kind`. `session` is the one that a 404 speaks of."""
        sent = msgspec.json.encode(body) if body is not None else None
        try:
            async with asyncio.timeout(seconds):
                with await self._send(method, path, query or {}, sent) as answer:
                    told = await answer.read()
        except TimeoutError:
            raise RookeryError("timeout", f"the agent did not answer {path} within {seconds:g} s", LOGS) from None
        except (OSError, ValueError) as error:
            raise unreachable(error) from None
        if answer.status >= 300:
            raise refused(answer.status, told, session)
        if kind is type(None):
            return msgspec.convert(None, kind)
        try:
            return msgspec.json.decode(told, type=kind)
        except ValueError as error:
            message = f"OpenCode's answer to {path} is not what was expected: {error}"
            raise RookeryError("agent-unavailable", message, "set `agents.version` to one that is supported") from None

    async def stream(self, path: str, seconds: float) -> Answer:
        """The answer from its head on; close it."""
        try:
            async with asyncio.timeout(seconds):
                answer = await self._send("GET", path, {}, None)
        except TimeoutError:
            raise RookeryError("timeout", f"the agent did not answer {path} within {seconds:g} s", LOGS) from None
        except (OSError, ValueError) as error:
            raise unreachable(error) from None
        if answer.status != 200:
            answer.close()
            raise refused(answer.status, b"", None)
        return answer

    async def _send(self, method: str, path: str, query: Mapping[str, str], body: bytes | None) -> Answer:
        words = {"directory": self.directory, **query}
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in words.items())
        requests = Requests(f"{self.url}{path}?{asked}", self._headers)
        # Said twice, these do no more than once.
        harmless = method in ("GET", "DELETE")
        return await self.http.send(requests.place, requests.write(method, {}, body), harmless=harmless)


def unreachable(error: Exception) -> RookeryError:
    return RookeryError("agent-unavailable", f"the agent cannot be reached: {error}", LOGS)
