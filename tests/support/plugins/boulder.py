"""Boulder for tests that set the time, with fake sessions and without waits."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from rookery.plugins.api import AskEvent, Event, House, MessageEvent, SessionEvent, ToolEvent
from rookery.plugins.boulder.engine import SessionTimers
from rookery.plugins.boulder.plugin import boulder_plugin
from rookery.plugins.boulder.policy import BoulderLimits, Todo
from rookery.plugins.boulder.service import Boulder
from rookery.plugins.boulder.state import SwitchLevel
from rookery.sessions.records import SessionAsk, SessionInfo, SessionMessage, ToolRun, WaitResult, session_not_found
from rookery.system.errors import RookeryError
from rookery.system.store import Store
from rookery.system.tasks import TaskSet
from tests.support.clock import SetClock

if TYPE_CHECKING:
    from rookery.plugins.boulder.store import LogLine
    from rookery.sessions.service import Sessions

WORKSPACE, ELSEWHERE = "/work/fix", "/work/other"
ONE, TWO = "ses_one", "ses_two"


@dataclass
class FakeSession:
    """A session that a test plays, with a record of what it receives."""

    id: str
    path: str = WORKSPACE
    running: bool = False
    error: str | None = None
    refuses: RookeryError | None = None
    # Whether what it is sent comes to its transcript.
    reads: bool = True
    messages: list[SessionMessage] = field(default_factory=list[SessionMessage])
    runs: list[ToolRun] = field(default_factory=list[ToolRun])
    todos: list[Todo] = field(default_factory=list[Todo])
    toasts: list[str] = field(default_factory=list[str])
    sent: list[str] = field(default_factory=list[str])
    # What happens while it is looked at.
    meanwhile: list[Event] = field(default_factory=list[Event])


class FakeSessions:
    """The part of the session service that boulder uses."""

    def __init__(self, *sessions: FakeSession) -> None:
        self.sessions = {one.id: one for one in sessions}
        self.tell: Any = None

    def _of(self, id_: str, scope: Path | None = None) -> FakeSession:
        found = self.sessions.get(id_)
        if found is None or scope not in (None, Path(found.path)):
            raise session_not_found(id_)
        return found

    async def get(self, id_: str, scope: Path | None = None) -> SessionInfo:
        one = self._of(id_, scope)
        for event in one.meanwhile:
            await self.tell(event)
        one.meanwhile.clear()
        status = "active" if one.running else "error" if one.error is not None else "idle"
        return SessionInfo(
            id=id_, directory=one.path, status=status, message_count=len(one.messages), last_activity=0, error=one.error
        )

    async def messages(self, id_: str, limit: int | None = 50) -> Any:
        return SimpleNamespace(messages=tuple(self._of(id_).messages))

    async def tool_history(self, id_: str, limit: int) -> list[ToolRun]:
        return self._of(id_).runs

    @asynccontextmanager
    async def use_agent(self, id_: str) -> AsyncGenerator[Any]:
        async def todos(session: str, kind: type[Todo]) -> list[Todo]:
            return self._of(session).todos

        yield SimpleNamespace(client=SimpleNamespace(todos=todos))

    async def show_toast(self, id_: str, message: str, **more: Any) -> None:
        one = self._of(id_)
        # Whoever sees the toast finds the message.
        assert len(one.sent) == len(one.toasts) + 1
        one.toasts.append(message)

    async def send(self, id_: str, content: str, **more: Any) -> None:
        one = self._of(id_)
        if one.refuses is not None:
            raise one.refuses
        one.sent.append(content)

    async def wait_for_message(self, id_: str, pattern: str, timeout: float, **more: Any) -> WaitResult:
        one = self._of(id_)
        return WaitResult(found=one.reads and re.search(pattern, one.sent[-1]) is not None)


class FakeFiles:
    """The files of a workspace: plans by their names, and the results of tasks."""

    def __init__(self) -> None:
        self.plans: dict[str, str] = {}
        self.tasks: dict[str, bool] = {}

    async def subject(self, level: SwitchLevel, reference: str) -> str:
        return reference

    async def watch(self, on_deleted: Any) -> None:
        """Do nothing: the test reports changes itself."""

    async def read(self, workspace: str, path: str) -> str:
        if path not in self.plans:
            raise RookeryError("file-not-found", f"{path} does not exist")
        return self.plans[path]

    async def run(self, workspace: str, task: str) -> tuple[bool, str]:
        if task not in self.tasks:
            raise RookeryError("needs-approval", "the justfile of this workspace is not approved")
        return self.tasks[task], "fails with 1"


class FakeTimers(SessionTimers):
    """Timers that fire when a test sets the clock forward."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.at: dict[str, float] = {}

    def set(self, session: str, at: float) -> None:
        self.at[session] = at

    def cancel(self, session: str) -> None:
        self.at.pop(session, None)

    def close(self) -> None:
        self.at.clear()

    def ring(self) -> None:
        for session in [one for one, at in self.at.items() if at <= self._clock.wall()]:
            self._on_timer(session)


class BoulderDriver:
    """Boulder and its fake environment."""

    def __init__(self, house: House, boulder: Boulder, played: FakeSessions, files: FakeFiles, clock: SetClock) -> None:
        self.house, self.boulder, self.played, self.files, self.clock = house, boulder, played, files, clock
        self.plugin = boulder_plugin(boulder)
        # The lines of the log, as they were written.
        self.told: list[LogLine] = []
        played.tell = self._hear

    @property
    def one(self) -> FakeSession:
        return self.played.sessions[ONE]

    async def act(self, action: str, scope: Path | None = None, **args: Any) -> Any:
        """Trigger an action, as a client does."""
        found = self.plugin.actions[action]
        assert found.takes is not None
        house = SimpleNamespace(scope=scope)
        answer = await found.run(found.takes(**args), house)
        await self.settle()
        return answer

    async def state(self, scope: Path | None = None) -> dict[str, Any]:
        assert self.plugin.state_function is not None
        return await self.plugin.state_function(SimpleNamespace(scope=scope))

    async def of(self, session: str = ONE) -> dict[str, Any]:
        return await self.boulder.session_state(session, None)

    async def gates(self, session: str = ONE) -> list[str]:
        return [one["gate"] for one in (await self.of(session))["gates"]]

    async def pass_(self, seconds: float) -> None:
        """Set the clock forward, and fire the timers that are due."""
        end = self.clock.now + seconds
        alarms = cast("FakeTimers", self.boulder.engine.timers)
        while alarms.at and min(alarms.at.values()) <= end:
            self.clock.now = max(self.clock.now, min(alarms.at.values()))
            alarms.ring()
            await self.settle()
        self.clock.now = end

    async def settle(self) -> None:
        async with asyncio.timeout(10):
            await self.house.tasks.wait_all()

    # ---- what happens

    async def hear(self, event: Event) -> None:
        await self._hear(event)
        await self.settle()

    async def _hear(self, event: Event) -> None:
        for hook in self.plugin.hooks:
            if hook.name == event.hook and (hook.when is None or hook.when()):
                await hook.run(event, self.house)

    async def session(self, what: str, id_: str = ONE, **more: Any) -> None:
        one = self.played.sessions.get(id_)
        if one is not None and what in ("busy", "idle"):
            one.running = what == "busy"
        path = one.path if one is not None else WORKSPACE
        await self.hear(
            SessionEvent(hook=f"session.{what}", session_id=id_, project="app", workspace="fix", path=path, **more)
        )

    async def says(self, role: str, content: str, id_: str = ONE) -> None:
        messages = self.played.sessions[id_].messages
        made = SessionMessage(id=f"msg_{len(messages)}", role=role, content=content, time=self.clock.now * 1000)
        messages.append(made)
        event = MessageEvent(hook="message.added", session_id=id_, message_id=made.id, role=role, content=content)
        await self.hear(event)

    async def turn(self, content: str, *, asked: str | None = "go", id_: str = ONE) -> None:
        """Play a turn: a message, the reply of the assistant, and idle."""
        if asked is not None:
            await self.says("user", asked, id_)
        await self.session("busy", id_)
        await self.says("assistant", content, id_)
        await self.session("idle", id_)

    async def tool(self, what: str) -> None:
        run = ToolRun(id="prt_1", session_id=ONE, tool="bash", status="running")
        await self.hear(ToolEvent(hook=f"tool.{what}", session_id=ONE, run=run))

    async def ask(self, what: str) -> None:
        ask = SessionAsk(id="per_1", session_id=ONE, kind="permission", text="bash: rm -rf build")
        await self.hear(AskEvent(hook=f"ask.{what}", session_id=ONE, ask=ask))


@asynccontextmanager
async def start_boulder(
    store: Path,
    *sessions: FakeSession,
    limits: BoulderLimits | None = None,
    checks: str = "",
    clock: SetClock | None = None,
    played: FakeSessions | None = None,
) -> AsyncGenerator[BoulderDriver]:
    """Start boulder with one session in a workspace, and the clock at a thousand seconds."""
    if clock is None:
        clock = SetClock()
        clock.now = 1000.0
    crashed: list[BaseException] = []
    played = played or FakeSessions(*(sessions or [FakeSession(ONE)]))
    files, tasks = FakeFiles(), TaskSet("boulder", lambda name, error: crashed.append(error))
    kept = Store(store)
    await kept.open()
    told: list[LogLine] = []
    boulder = Boulder(kept, files, limits or BoulderLimits(), checks, told.append, FakeTimers)
    house = House(
        plugin="boulder",
        sessions=cast("Sessions", played),
        clock=clock,
        tasks=tasks,
        state_folder=store.parent,
        audit=lambda line: None,
        log=logging.getLogger("rookery.plugins.boulder"),
    )
    made = BoulderDriver(house, boulder, played, files, clock)
    made.told = told
    try:
        assert made.plugin.start_function is not None and made.plugin.stop_function is not None
        await made.plugin.start_function(house)
        yield made
        await made.plugin.stop_function(house)
        if crashed:
            raise crashed[0]
    finally:
        await tasks.close()
        await kept.close()
