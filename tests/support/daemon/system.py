"""The whole system as a user has it: the real daemon, real OpenCodes in its workspaces, and a scripted model."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp

from rookery.system.confinement.kernel import find_support
from rookery.testing.model import ScriptedModel, scripted_model
from rookery.testing.request_log import LoggedRequest
from tests.support.agents.launch import config_with
from tests.support.daemon.process import Daemon, rookery, up, wait_dead
from tests.support.opencode.home import OFFLINE, fetch_no_plugin_package, scripted_config
from tests.support.opencode.process import installed

# Several OpenCodes start at once, and the machine may be busy with other tests.
LIMIT = 400.0

Shown = dict[str, Any]
T = TypeVar("T")


@dataclass
class FullSystem:
    """A daemon, its environment, and the model that all of its agents use."""

    daemon: Daemon
    model: ScriptedModel
    env: dict[str, str]
    _session: aiohttp.ClientSession = field(repr=False)

    # ---- asking

    async def rest(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request of the owner, and check that it succeeds."""
        url = self.daemon.runtime["url"] + path
        headers = {"Authorization": f"Bearer {self.daemon.token}", "Content-Type": "application/json"}
        data = json.dumps(body) if body is not None else None
        async with self._session.request(method, url, data=data, headers=headers) as answer:
            text = await answer.text()
            assert answer.status < 400, f"{method} {path}: {answer.status} {text}"
            return json.loads(text)

    async def cli(self, *words: str, cwd: Path | None = None) -> CompletedProcess[str]:
        return await asyncio.to_thread(rookery, *words, env=self.env, cwd=cwd, seconds=LIMIT)

    async def create(self, name: str, prompt: str | None = None, project: str | None = None) -> Shown:
        """Create a workspace and wait until it is prepared; its agent may still be starting."""
        asked = {"name": name, "prompt": prompt, "project": project, "wait": True}
        return await self.rest("POST", "/api/workspaces", asked)

    async def workspaces(self) -> dict[str, Shown]:
        """Return the workspaces of `rookery status`, without main checkouts."""
        return {one["name"]: one for one in (await self.rest("GET", "/api/status"))["workspaces"] if not one["main"]}

    async def show(self, one: Shown) -> Shown:
        return await self.rest("GET", place_of(one))

    # ---- waiting

    async def until(self, one: Shown, true: Callable[[Shown], object]) -> Shown:
        """Wait until the workspace meets the condition, and return it."""
        return await self._until(lambda: self.show(one), true)

    async def until_all(self, true: Callable[[dict[str, Shown]], object]) -> dict[str, Shown]:
        """Wait until all workspaces meet the condition, and return them."""
        return await self._until(self.workspaces, true)

    async def _until(self, look: Callable[[], Awaitable[T]], true: Callable[[T], object]) -> T:
        """Check the condition again after every change."""
        seen: list[T] = []
        try:
            async with asyncio.timeout(LIMIT), self._changes() as changed:
                while True:
                    changed.clear()
                    unforeseen = [one.problem for one in self.model.requests.unforeseen]
                    assert not unforeseen, unforeseen
                    seen.append(await look())
                    if true(seen[-1]):
                        return seen[-1]
                    await changed.wait()
        except TimeoutError:
            raise AssertionError(f"that did not come to hold; last seen: {seen[-1:]}") from None

    async def asked(self, wanted: Callable[[LoggedRequest], object]) -> LoggedRequest:
        """Return the first request to the model that meets the condition."""
        try:
            async with asyncio.timeout(LIMIT):
                return await self.model.requests.wait_for(lambda record: bool(wanted(record)))
        except TimeoutError:
            told = [
                (one.kind, one.user, one.conversation, one.turn, one.step, one.problem) for one in self.model.requests
            ]
            raise AssertionError(f"the model was not asked that, but: {told}") from None

    @asynccontextmanager
    async def _changes(self) -> AsyncGenerator[asyncio.Event]:
        """Set the flag on every event of the daemon."""
        changed = asyncio.Event()
        headers = {"Authorization": f"Bearer {self.daemon.token}"}
        url = f"{self.daemon.runtime['url']}/api/events"
        async with self._session.get(url, headers=headers, timeout=aiohttp.ClientTimeout(None)) as stream:

            async def listen() -> None:
                async for _ in stream.content:
                    changed.set()

            task = asyncio.ensure_future(listen())
            try:
                yield changed
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError, aiohttp.ClientError):
                    await task

    # ---- lives of the daemon

    async def killed(self) -> None:
        """Kill the daemon, as in a crash."""
        os.kill(self.daemon.pid, 9)
        await asyncio.to_thread(wait_dead, self.daemon.pid)

    async def start_again(self) -> None:
        self.daemon = await asyncio.to_thread(up, env=self.env)


def place_of(one: Shown) -> str:
    """Return the route of a workspace."""
    return f"/api/workspaces/{quote(one['project'])}/{quote(one['name'], safe='')}"


def is_ready(one: Shown) -> bool:
    """Return whether the agent of a workspace works without problems."""
    return one["agent"]["state"] == "running"


def confining() -> dict[str, str]:
    """Return the settings with which every agent that can be confined is."""
    if find_support().abi < 1:
        return {}
    # The programs that agents run for a test.
    programs = str(Path(__file__).parents[2] / "programs")
    return {
        "ROOKERY_AGENTS_SANDBOX": "workspace",
        "ROOKERY_SANDBOX_UNAVAILABLE": "unconfined",
        "ROOKERY_SANDBOX_READ": programs,
    }


def offline_environment(model_url: str) -> dict[str, str]:
    """Return the environment of a user with OpenCode and ripgrep on PATH, one model in the config, and no network."""
    config = Path(os.environ["HOME"]) / ".config" / "opencode"
    fetch_no_plugin_package(config)
    (config / "opencode.json").write_text(config_with(**scripted_config(model_url)))
    agents = {"ROOKERY_AGENTS_VERSION": "path", "ROOKERY_AGENTS_START": "open", "ROOKERY_AGENTS_START_SECONDS": "300"}
    return {"PATH": installed().search_path, "LANG": "C.UTF-8", **agents, **OFFLINE}


@asynccontextmanager
async def start_system(
    script: Any, *projects: Path, settings: Mapping[str, str] | None = None
) -> AsyncGenerator[FullSystem]:
    """Run a daemon with these projects. Its orderly stop, without an error in its log, is part of every test.

    `settings` are additional environment variables. Agents are confined where the kernel can, except those of main
    checkouts.
    """
    async with scripted_model(script) as model, aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(LIMIT)) as session:
        env = await asyncio.to_thread(offline_environment, model.url) | confining() | dict(settings or {})
        daemon = await asyncio.to_thread(up, env=env)
        made = FullSystem(daemon, model, env, session)
        try:
            for project in projects:
                await made.rest("POST", "/api/projects", {"path": str(project)})
            yield made
        finally:
            done = await made.cli("down")
        assert done.returncode == 0, done.stderr
        assert [line for line in made.daemon.log() if line["level"] == "error"] == []
