"""The whole gateway in the test process: every part is the daemon's own, from the listener to the store."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import pytest

from rookery.daemon.composition import Composition, DaemonCallbacks
from rookery.daemon.settings.schema import GuardSettings, Settings
from rookery.guard.pins.store import make_seal
from rookery.guard.seal import Seal
from rookery.operations.status import DaemonStatus, ReloadedSettings
from rookery.system.bus import Bus, Event
from rookery.system.fs import paths
from rookery.system.ids import new_id, project_id
from rookery.system.process.spawn import Spawner
from rookery.system.store import Store
from rookery.system.tasks import CRASH_LOG
from rookery.upstreams.hub import Hub
from rookery.upstreams.server import Server
from rookery.wire.http.auth import OWNER, Authenticate, make_tcp_authenticator
from tests.support.http.listener import RunningListener, admit_everybody, start_listener
from tests.support.mcp.caller import HANDSHAKE, MODERN, Caller
from tests.support.mcp.client import LIMIT
from tests.support.mcp.scripted_server import ScriptedServers, start_scripted_servers
from tests.support.tasks import require_no_tasks_since

# For tests about servers whose lists change: with pins, what is new in them would be withheld.
UNPINNED = Settings(guard=GuardSettings(pins="off"))
# For tests about servers whose texts are hostile: with the scanner, they would be withheld.
UNSCANNED = Settings(guard=GuardSettings(scan="off"))
# The owner's token, where a gateway asks for tokens.
OWNERS = "rk_the-owners-token"


class Events(Bus):
    """A record of the daemon's events, for tests that wait for one."""

    def __init__(self) -> None:
        super().__init__("events")
        self.all: list[Event] = []
        self.more = asyncio.Event()

    def publish(self, type_: str, **data: Any) -> Event:
        made = super().publish(type_, **data)
        self.all.append(made)
        self.more.set()
        return made

    def of(self, type_: str) -> list[dict[str, Any]]:
        return [event.data for event in self.all if event.type == type_]


class Gateway:
    """A running gateway, with scripted servers and raw clients."""

    def __init__(
        self,
        parts: Composition,
        events: Events,
        scripted: ScriptedServers,
        site: RunningListener,
        http: aiohttp.ClientSession,
    ) -> None:
        self.parts = parts
        self.service = parts.gateway
        self.approvals = parts.approvals
        self.workspaces = parts.workspaces.workspaces
        self.events = events
        self.scripted = scripted
        self.site = site
        self.http = http
        self.callers: list[Caller] = []

    @property
    def hub(self) -> Hub:
        return self.service.hub

    def url(self, path: str = "/mcp") -> str:
        return f"http://127.0.0.1:{self.site.port}{path}"

    async def caller(self, path: str = "/mcp", revision: str = MODERN, **more: Any) -> Caller:
        made = Caller(self.http, self.url(path), revision, **more)
        await made.open()
        self.callers.append(made)
        return made

    async def old_caller(self, path: str = "/mcp", **more: Any) -> Caller:
        """Return a client of the handshake era."""
        return await self.caller(path, HANDSHAKE, **more)

    async def rest(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {OWNERS}"}
        async with self.http.request(method, self.url(path), data=data, headers=headers) as answer:
            return answer.status, json.loads(await answer.read())

    async def server(self, name: str, directory: Path | None = None, session: str | None = None) -> Server:
        return (await self.hub.server_set(directory)).server(name, session)

    async def status(self, name: str, directory: Path | None = None) -> str:
        return next(one.status for one in await self.hub.records(directory) if one.name == name)

    async def becomes(self, name: str, *wanted: str, directory: Path | None = None) -> str | None:
        """Wait until a server has one of these statuses, and return its error."""
        news = self.events.more
        stop = (await self.hub.server_set(directory)).listen(news.set, lambda session: None)
        try:
            async with asyncio.timeout(LIMIT):
                while await self.status(name, directory) not in wanted:
                    news.clear()
                    await news.wait()
        except TimeoutError:
            raise AssertionError(f"{name} is {await self.status(name, directory)}, not {wanted}") from None
        finally:
            stop()
        return next(one.error for one in await self.hub.records(directory) if one.name == name)

    async def crash(self, name: str, *, directory: Path | None = None) -> str | None:
        """Kill a scripted server that was not used since it started, so that it is failed. Return its error."""
        server = await self.server(name, directory)
        before = [one.pid for one in self.scripted.of(name)]
        await server.disconnect()
        await server.connect()
        one = await self.scripted.comes_in(server.directory, name, before)
        os.kill(one.pid, signal.SIGKILL)
        return await self.becomes(name, "failed", "backoff", directory=directory)


def user_file() -> Path:
    return paths.config_folder() / "mcp.json"


def write(servers: Mapping[str, Any], path: Path | None = None, **top: Any) -> None:
    """Define servers in the user's own file, or in another one."""
    path = path or user_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"servers": servers, **top}))


def checkout(name: str = "app") -> Path:
    """Create an empty repository."""
    folder = Path.home() / "src" / name
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


def worktree(folder: Path, name: str) -> Path:
    """Create another workspace of a repository."""
    made = folder.parent / f"{folder.name}-{name}"
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "-C", str(folder), *who, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run(["git", "-C", str(folder), "worktree", "add", "-q", "-b", name, str(made)], check=True)
    return made


def view_of(folder: Path, server: str | None = None, workspace: str = "@main") -> str:
    """Return the path of a workspace's endpoint, or of one server in it; `folder` is the main checkout."""
    end = "/mcp" if server is None else f"/s/{quote(server, safe='')}/mcp"
    return f"/w/{project_id(folder.resolve())}/{workspace}{end}"


@asynccontextmanager
async def start_gateway(
    servers: Callable[[ScriptedServers], Mapping[str, Any]] | Mapping[str, Any] | None = None,
    *projects: Path,
    patient: bool = True,
    with_tokens: bool = False,
    settings: Settings | None = None,
    **top: Any,
) -> AsyncGenerator[Gateway]:
    """Run a gateway with `servers` and the other members in the user's file. At the end no task is left or has crashed.

    A list waits for all servers, even on a slow machine, unless `patient` is false. A failed server is not
    started again during the test, unless it is connected. Without tokens every client is the owner.
    """
    before, crashes = asyncio.all_tasks(), CRASH_LOG.entries()
    async with AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("rookery.wire.client.connect.compute_backoff", _an_hour)
        if patient:
            patch.setattr("rookery.gateway.view._MIN_SECONDS", LIMIT)
        scripted = await stack.enter_async_context(start_scripted_servers())
        write((servers(scripted) if callable(servers) else servers) or {}, **top)
        state = paths.ensure_private_folder(paths.state_folder())
        Seal.for_store(paths.store_file(state)).create()
        make_seal(paths.store_file(state)).create()
        store = Store(paths.store_file(state))
        await store.open()
        stack.push_async_callback(store.close)
        spawner, events = Spawner(new_id()), Events()
        hands = DaemonCallbacks(
            "test", lambda: DaemonStatus(0, "", "", 0.0, "0", "test", []), _reload_nothing, lambda reason: None
        )
        settings = settings or Settings()
        made = Composition(
            confine_servers(settings) if SERVERS.confined else settings,
            state,
            store=store,
            spawner=spawner,
            events=events,
            logs=Bus("logs"),
            callbacks=hands,
        )
        made.tokens.add(OWNERS, OWNER)
        for folder in projects:
            await made.projects.add(folder)
        for service in (made.audit, made.workspaces, made.files, made.gateway, made.upkeep):
            await service.start()
            stack.push_async_callback(service.stop)

        def judge_of(port: int) -> Authenticate:
            return make_tcp_authenticator(port, made.tokens) if with_tokens else admit_everybody

        site = await stack.enter_async_context(start_listener(made.endpoint_router, judge_of=judge_of))
        stack.callback(made.endpoint_router.close)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        gateway = Gateway(made, events, scripted, site, http)
        yield gateway
        for caller in gateway.callers:
            await caller.close()
    require_no_tasks_since(before)
    assert CRASH_LOG.entries() == crashes


@dataclass
class ServerDefaults:
    """Whether servers are confined whose entries do not say. A module sets it to run the tests of another again."""

    confined: bool = False


SERVERS = ServerDefaults()


def confine_servers(settings: Settings) -> Settings:
    """Return settings that confine servers.

    Scripted ones need the folder of the tests and a Unix socket, and some count their starts in the home folder.
    """
    servers = msgspec.structs.replace(settings.servers, sandbox="workspace", repository_sandbox="workspace")
    sandbox = msgspec.structs.replace(
        settings.sandbox, read=str(Path(__file__).parents[2]), write="~", unix_sockets=True
    )
    return msgspec.structs.replace(settings, servers=servers, sandbox=sandbox)


def _an_hour(failures: int) -> float:
    return 3_600.0


async def _reload_nothing() -> ReloadedSettings:
    return ReloadedSettings([], [])
