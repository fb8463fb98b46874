"""Toasts of a real daemon through every interface: MCP, REST, the command line and Python."""

import json
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client

import rookery
from rookery.sdk.client import Rookery
from tests.support.daemon.sdk_client import open_sdk_client
from tests.support.daemon.system import FullSystem
from tests.support.mcp.sdk_client import MODERN

Shown = dict[str, Any]


class Toasts:
    """Makes each read and each wait on every interface, and returns one result for each of them."""

    def __init__(self, system: FullSystem, path: Path, client: Client, hub: Rookery) -> None:
        self._system, self._path, self._client, self._hub = system, path, client, hub

    async def session(self) -> str:
        made = await self._system.rest("POST", "/api/sessions", {"directory": str(self._path), "title": "a session"})
        return made["id"]

    async def show(self, session: str, message: str) -> None:
        toast = {"message": message, "variant": "success", "duration": 600_000}
        await self._system.rest("POST", f"/api/sessions/{session}/toasts", toast)

    async def send(self, session: str, content: str) -> None:
        await self._system.rest("POST", f"/api/sessions/{session}/messages", {"content": content, "timeout": 120_000})

    async def close(self, session: str) -> None:
        await self._system.rest("DELETE", f"/api/sessions/{session}")

    async def press(self, session: str, *keys: str) -> None:
        await self._system.rest("POST", f"/api/sessions/{session}/keys", {"keys": keys})

    # ---- reads

    async def of(self, session: str | None, since: float | None = None) -> list[list[Shown]]:
        """Return the toasts of a session, or of all."""
        given = {name: value for name, value in (("sessionId", session), ("since", since)) if value is not None}
        query = f"?since={since}" if since is not None else ""
        words = [*([session] if session is not None else []), *(["--since", "1d"] if since is not None else [])]
        found = [
            await self._tool("get_toasts", given),
            await self._system.rest("GET", f"/api/sessions/{f'{session}/' if session else ''}toasts{query}"),
            json.loads((await self._system.cli("session", "toasts", *words, "--json")).stdout),
        ]
        if session is not None:
            shown = await (await self._hub.sessions.get(session)).toasts(since=since)
            found.append([one.as_dict() for one in shown])
        return found

    async def printed(self, session: str) -> str:
        """Return the text output of the command line."""
        return (await self._system.cli("session", "toasts", session)).stdout

    # ---- waits

    def waits(
        self, session: str, pattern: str, seconds: float, since: float | None = None
    ) -> list[Coroutine[Any, Any, Shown]]:
        """Wait for a toast. `since` is in seconds since the epoch; the command line uses the last day instead."""
        moment = {"since": since * 1000} if since is not None else {}
        given = {"pattern": pattern, "timeout": seconds * 1000, **moment}
        return [
            self._tool("wait_for_toast", {"sessionId": session, **given}),
            self._system.rest("POST", f"/api/sessions/{session}/wait", {"for": "toast", **given}),
            self._wait_by_cli(session, pattern, seconds, [] if since is None else ["--since", "1d"]),
            self._wait_by_python(session, pattern, seconds, since),
        ]

    async def _tool(self, name: str, given: Shown) -> Any:
        answer = await self._client.call_tool(name, given)
        assert not answer.is_error and answer.structured_content is not None, answer
        return answer.structured_content.get("result", answer.structured_content)

    async def _wait_by_cli(self, session: str, pattern: str, seconds: float, more: list[str]) -> Shown:
        words = ("session", "wait", session, "--toast", pattern, "--timeout", str(seconds), "--json", *more)
        done = await self._system.cli(*words, cwd=self._path)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    async def _wait_by_python(self, session: str, pattern: str, seconds: float, since: float | None) -> Shown:
        found = await self._hub.sessions.get(session)
        return (await found.wait_for_toast(pattern, seconds, since=since, check=False)).as_dict()


@asynccontextmanager
async def every_interface(system: FullSystem, path: Path) -> AsyncGenerator[Toasts]:
    async with open_sdk_client(system.daemon, "http", MODERN) as client, rookery.connect() as hub:
        yield Toasts(system, path, client, hub)
