"""Requests of tests to an OpenCode server, in plain HTTP: sessions, turns, messages."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

# A first turn takes 3 seconds on a quiet machine.
TURN_SECONDS = 90


class OpenCodeApi:
    """Sends every request for `directory`, and returns the decoded body."""

    def __init__(self, url: str, directory: Path, password: str | None = None) -> None:
        self._url = url
        self._directory = str(directory)
        self._headers = {"Authorization": aiohttp.encode_basic_auth("opencode", password)} if password else {}

    async def __aenter__(self) -> "OpenCodeApi":
        self._http = aiohttp.ClientSession(headers=self._headers, timeout=aiohttp.ClientTimeout(TURN_SECONDS))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        query = {"directory": self._directory}
        async with self._http.request(method, self._url + path, params=query, json=body) as answer:
            text = await answer.text()
            assert answer.status < 400, f"{method} {path}: {answer.status} {text}"
            return json.loads(text) if text else None

    async def session(self, title: str | None = "a session", **more: Any) -> str:
        """Create a session; without a title OpenCode requests one from the model."""
        body = {**({"title": title} if title else {}), **more}
        return (await self.ask("POST", "/session", body))["id"]

    async def turn(self, session: str, text: str) -> dict[str, Any]:
        """Send a message, wait for the end of the turn, and return its last assistant message, `info` and `parts`."""
        return await self.ask("POST", f"/session/{session}/message", {"parts": [{"type": "text", "text": text}]})

    async def prompt(self, session: str, text: str) -> None:
        """Send a message without waiting."""
        await self.ask("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}]})

    async def messages(self, session: str) -> list[dict[str, Any]]:
        return await self.ask("GET", f"/session/{session}/message")

    async def tools(self, session: str) -> list[dict[str, Any]]:
        """Return the tool parts of a session, in order."""
        found = await self.messages(session)
        return [part for message in found for part in message["parts"] if part["type"] == "tool"]
