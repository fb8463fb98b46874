"""A watched agent: the real OpenCode with our client, and a watcher whose changes are recorded."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from rookery.agents.opencode.api import AgentClient
from rookery.agents.opencode.events import AgentEvent
from rookery.agents.status import SessionState
from rookery.agents.watcher import AgentWatcher
from rookery.system.process.spawn import Spawner
from rookery.testing.model import ScriptedModel
from rookery.wire.http_client.client import HttpClient
from tests.support.opencode.home import OpenCodeHome, scripted_config
from tests.support.opencode.process import start_opencode
from tests.support.opencode.shared import PASSWORD, SharedOpenCode


class CuttableProxy:
    """A proxy for the server at `port` of this machine."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._ends = set[asyncio.StreamWriter]()
        self._carriers = set[asyncio.Task[None]]()
        self.port = 0
        # How many connections were made over it.
        self.made = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Cut all connections, and refuse new ones until `mend` is called."""
        self._server.close()
        self.jolt()
        await asyncio.gather(*self._carriers, return_exceptions=True)
        await self._server.wait_closed()

    def jolt(self) -> None:
        """Cut all connections; new ones can be opened at once."""
        for end in self._ends:
            end.transport.abort()

    async def __aenter__(self) -> Self:
        await self.mend()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cut()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carriers.add(task)
        self._ends.add(writer)
        self.made += 1
        try:
            with contextlib.suppress(OSError):
                their_reader, their_writer = await asyncio.open_connection("127.0.0.1", self._target)
                self._ends.add(their_writer)
                await asyncio.gather(_pass(reader, their_writer), _pass(their_reader, writer))
                self._ends.discard(their_writer)
        finally:
            self._ends.discard(writer)
            self._carriers.discard(task)
            writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.transport.abort()


# What OpenCode does takes seconds on a busy machine.
LIMIT = 60.0


class WatcherRecorder:
    """A watcher, and a record of its changes."""

    def __init__(self, client: AgentClient, **options: Any) -> None:
        self.events = list[AgentEvent]()
        # What was known at every change, for a test that wants to know what was never shown.
        self.history = list[dict[str, str]]()
        self._more = asyncio.Event()
        self.watcher = AgentWatcher(client, self._changed, on_event=self._heard, **options)

    def _changed(self) -> None:
        self.history.append(self.states())
        self._more.set()

    def _heard(self, event: AgentEvent) -> None:
        self.events.append(event)
        self._more.set()

    def states(self) -> dict[str, str]:
        return {one.id: one.state for one in self.watcher.sessions}

    def of(self, session: str) -> SessionState:
        return next(one for one in self.watcher.sessions if one.id == session)

    async def until(self, true: Callable[[AgentWatcher], object]) -> None:
        """Return when the watcher meets the condition."""
        async with asyncio.timeout(LIMIT):
            while not true(self.watcher):
                self._more.clear()
                await self._more.wait()

    async def until_is(self, session: str, state: str) -> None:
        await self.until(lambda _: self.states().get(session) == state)


@asynccontextmanager
async def start_watcher(client: AgentClient, **options: Any) -> AsyncGenerator[WatcherRecorder]:
    """Run a watcher until the end of the block, and yield it after its first complete read."""
    watched = WatcherRecorder(client, **options)
    watched.watcher.start()
    try:
        async with asyncio.timeout(LIMIT):
            await watched.watcher.wait_for_snapshot()
        yield watched
    finally:
        await watched.watcher.close()


@asynccontextmanager
async def start_agent_client(
    folder: Path,
    model: ScriptedModel,
    *,
    home: OpenCodeHome | None = None,
    config: Mapping[str, Any] | None = None,
    spawner: Spawner | None = None,
) -> AsyncGenerator[AgentClient]:
    """Start the real OpenCode with a password in `folder`, and yield our client for it."""
    env = {"OPENCODE_SERVER_PASSWORD": PASSWORD}
    settings = scripted_config(model.url, **(config or {}))
    async with HttpClient() as http, start_opencode(folder, settings, home=home, env=env, spawner=spawner) as running:
        yield AgentClient(http, running.url, folder, PASSWORD)


@asynccontextmanager
async def open_shared_client(
    shared: SharedOpenCode, folder: Path, model: ScriptedModel, config: Mapping[str, Any] | None = None
) -> AsyncGenerator[AgentClient]:
    """Yield our client for the shared OpenCode and `folder`, which gets its own config."""
    shared.configure(folder, scripted_config(model.url, **(config or {})))
    async with HttpClient() as http:
        yield AgentClient(http, shared.url, folder, PASSWORD)


@asynccontextmanager
async def through_proxy(client: AgentClient) -> AsyncGenerator[tuple[CuttableProxy, AgentClient]]:
    """Yield a second client of the same agent, whose connections a test can cut."""
    link = client.connection
    async with HttpClient() as http, CuttableProxy(urlsplit(link.url).port or 0) as proxy:
        yield proxy, AgentClient(http, proxy.url, Path(link.directory), link.password)


def make_script(**turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a script for every session: the steps after a message that contains the keyword's name."""
    return {"turn": [{"when": name, "step": done} for name, done in turns.items()]}
