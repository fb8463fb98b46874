"""Tools by name, run by the real OpenCode beside its sessions."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from rookery.agents.opencode.api import AgentClient
from rookery.agents.opencode.records import Session
from rookery.agents.policy import SupervisionIntervals
from rookery.agents.run import AgentRun
from rookery.sessions.conversion import is_hidden
from rookery.sessions.records import ToolRun
from rookery.sessions.run_tool import HiddenChildExecutor
from rookery.sessions.service import Sessions
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.workspaces.model import Workspace
from tests.support.agents.host import LIMIT, AgentHost, start_agent_host
from tests.support.agents.watcher import make_script
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SCRIPT = make_script(
    hello=[{"say": "hello yourself"}],
    work=[
        {"call": "bash", "with": {"command": "echo one", "description": "work"}},
        {"call": "bash", "with": {"command": "echo two", "description": "work"}, "hold": "work"},
        {"say": "worked"},
    ],
)
# Keeps a note of what it sees of tools.
PLUGIN = """
import { appendFileSync } from "fs"
const note = (what, call) => appendFileSync("NOTES", JSON.stringify([what, call.tool, call.sessionID]) + "\\n")
export default async () => ({
  "tool.execute.before": async (call) => note("before", call),
  "tool.execute.after": async (call) => note("after", call),
})
"""

T = TypeVar("T")


class Stage:
    """A session of an agent, and tools that are run beside it."""

    def __init__(self, host: AgentHost, sessions: Sessions, executor: HiddenChildExecutor, life: AgentRun) -> None:
        self.host, self.sessions, self.executor, self.life = host, sessions, executor, life
        self.folder = Path(life.client.directory)
        self.pid_file = self.folder / "pid"
        self.session = ""

    @property
    def client(self) -> AgentClient:
        return self.life.client

    async def begin(self, *rules: tuple[str, str, str], **more: Any) -> None:
        """Another session, with these rules."""
        given = [{"permission": tool, "pattern": pattern, "action": action} for tool, pattern, action in rules]
        self.session = (await self.client.create_session(title="a session", permission=given or None, **more)).id

    async def run(self, tool: str, **args: Any) -> ToolRun:
        return await self.executor.execute(self.life, self.session, tool, args, timeout=LIMIT)

    async def refused(self, tool: str, **args: Any) -> RookeryError:
        with pytest.raises(RookeryError) as caught:
            await self.run(tool, **args)
        return caught.value

    async def children(self) -> list[Session]:
        return await self.client.children(self.session)

    async def until(self, look: Callable[[], Awaitable[T | None]]) -> T:
        """What is found by a look, which is taken again whenever something was heard of the agent."""
        news = asyncio.Event()
        self.life.listeners.append(lambda event: news.set())
        async with asyncio.timeout(LIMIT):
            while True:
                news.clear()
                if (found := await look()) is not None:
                    return found
                await news.wait()

    async def asked(self) -> str:
        """The id of what the session waits for, once it waits."""

        async def look() -> str | None:
            asks = [ask for one in self.life.watcher.sessions if one.id == self.session for ask in one.asks]
            return asks[0].id if asks else None

        return await self.until(look)

    async def noted(self, run: ToolRun, status: str) -> ToolRun:
        """What the history of the session says of a run, once it has come so far."""

        async def look() -> ToolRun | None:
            runs = await self.sessions.tool_history(self.session)
            return next((one for one in runs if one.id == run.id and one.status == status), None)

        return await self.until(look)

    async def sleeper(self) -> psutil.Process:
        """The process of a slow command, which has told its id before the agent says that it has begun."""

        async def look() -> psutil.Process | None:
            told = self.pid_file.read_text() if self.pid_file.exists() else ""
            return psutil.Process(int(told)) if told.endswith("\n") else None

        found = await self.until(look)
        self.pid_file.unlink()
        return found

    @property
    def workspace(self) -> Workspace:
        return next(one for one in self.host.agents.workspaces() if one.path == self.folder)


@asynccontextmanager
async def a_stage(**more: Any) -> AsyncGenerator[Stage]:
    app = make_repository(Path.home() / "src" / "app", {"notes.txt": "a needle\n"})
    async with start_agent_host(SCRIPT, app, **more) as host:
        sessions = Sessions(host.agents, host.gateway.workspaces, Bus("sessions"))
        executor = sessions.executor = HiddenChildExecutor(host.gateway.parts.agents.scripted_calls, 0.1)
        made = await host.create("one")
        stage = Stage(host, sessions, executor, await host.agents.ensure_running(made))
        await stage.begin()
        try:
            yield stage
        finally:
            await executor.close()


@requirement("session.exec.real", "session.exec.input")
async def test_the_agents_own_tools_run_beside_a_session_which_stays_as_it_is() -> None:
    plugin = Path.home() / ".config" / "opencode" / "plugin" / "notes.js"
    plugin.parent.mkdir(parents=True)
    noted = Path.home() / "noted"
    plugin.write_text(PLUGIN.replace("NOTES", str(noted)))
    async with a_stage() as stage:
        file = stage.folder / "made.txt"
        wrote = await stage.run("write", filePath=str(file), content="one two\n")
        assert (wrote.status, wrote.error, wrote.origin) == ("completed", None, "execute_tool")
        assert wrote.start is not None and wrote.end is not None and wrote.start <= wrote.end
        assert wrote.input == {"filePath": str(file), "content": "one two\n"}
        edited = await stage.run("edit", filePath=str(file), oldString="two", newString="three")
        assert (edited.status, file.read_text()) == ("completed", "one three\n")
        read = await stage.run("read", filePath=str(file))
        assert (read.tool, read.session_id) == ("read", stage.session) and "one three" in (read.output or "")
        assert "Line 1: a needle" in ((await stage.run("grep", pattern="needle")).output or "")
        ran = await stage.run("bash", command="pwd; exit 3", description="look")
        assert (ran.status, ran.output, ran.exit_code) == ("completed", f"{stage.folder}\n", 3)

        tools = await stage.executor.tools(stage.life, stage.session)
        assert {"read", "write", "bash", "edit", "grep", "rookery_workspace_get_status"} <= {*tools}
        assert not {"task", "todowrite", "question"} & {*tools}
        theirs = await stage.run("rookery_workspace_get_status")
        assert json.loads(theirs.output or "")["isDirty"] is True

        wrong = await stage.run("read", path="nothing")
        assert (wrong.status, wrong.input) == ("error", {"path": "nothing"}) and "filePath" in (wrong.error or "")
        missing = await stage.run("read", filePath=str(stage.folder / "nothing"))
        assert missing.status == "error" and "not found" in (missing.error or "").lower()
        unknown = await stage.refused("levitate")
        assert (unknown.code, "bash" in unknown.details) == ("invalid-input", True)
        assert (await stage.refused("todowrite", todos=[])).code == "invalid-input"
        assert (await stage.refused("write", filePath=str(file), content="\ud800")).code == "invalid-input"
        stage.session, kept = (await stage.children())[0].id, stage.session
        assert (await stage.refused("read", filePath=str(file))).code == "session-not-found"
        stage.session = kept

        together = [stage.run("bash", command=f"echo {number}", description="count") for number in range(5)]
        assert [one.output for one in await asyncio.gather(*together)] == [f"{number}\n" for number in range(5)]
        children = await stage.children()
        assert all(is_hidden(one) for one in children) and len(children) <= 6
        assert [one.id for one in stage.life.watcher.sessions] == [stage.session]
        assert await stage.client.messages(stage.session) == []
        mine = await stage.client.session(stage.session)
        assert (mine.model, mine.agent, mine.title) == (None, None, "a session")
    notes = [json.loads(line) for line in noted.read_text().splitlines()]
    assert [(when, tool) for when, tool, _ in notes[:2]] == [("before", "write"), ("after", "write")]
    assert {session for _, _, session in notes} <= {one.id for one in children}
    assert {tool for _, tool, _ in notes} >= {"read", "bash", "rookery_workspace_get_status"}


@requirement("session.exec.real")
async def test_a_turn_that_runs_meanwhile_its_model_and_its_messages_are_left_alone() -> None:
    async with a_stage() as stage:
        client = stage.client
        await client.send(stage.session, "hello")
        before = await client.session(stage.session)
        await client.prompt(stage.session, "work")
        held = await stage.host.model.requests.wait_for(lambda one: one.session == stage.session and one.step == 2)
        assert held.ended is None

        there = await client.messages(stage.session)
        assert (await stage.run("read", filePath=str(stage.folder / "notes.txt"))).status == "completed"
        assert (await stage.run("bash", command="echo beside", description="beside")).output == "beside\n"
        assert await client.messages(stage.session) == there
        assert stage.life.running == {stage.session}

        stage.host.model.release("work")

        async def at_rest() -> bool | None:
            return None if stage.life.running else True

        await stage.until(at_rest)
        after = await client.messages(stage.session)
        assert [one.info.role for one in after] == ["user", "assistant", "user", *["assistant"] * 3]
        assert after[-1].text == "worked"
        outputs = [part.state.output for one in after for part in one.parts if part.state is not None]
        assert outputs == ["one\n", "two\n"]
        now = await client.session(stage.session)
        assert (now.model, now.agent, now.title) == (before.model, before.agent, before.title)
        assert not stage.host.model.requests.unforeseen


@requirement("session.exec.real", "session.exec.input", "session.history.get")
async def test_the_sessions_rules_hold_and_what_they_ask_about_waits_for_an_answer() -> None:
    async with a_stage() as stage:
        await stage.begin(("bash", "*", "ask"), ("edit", "*", "deny"), ("read", "*.secret", "deny"), agent="plan")
        waits = asyncio.Event()

        async def tell(text: str) -> None:
            if text == "it waits for an answer: bash: echo asked":
                waits.set()

        async def command(**more: Any) -> ToolRun:
            args = {"command": "echo asked", "description": "ask"}
            return await stage.executor.execute(stage.life, stage.session, "bash", args, timeout=LIMIT, **more)

        first = asyncio.ensure_future(command(progress=tell))
        await asyncio.wait_for(waits.wait(), LIMIT)
        await stage.client.answer_permission(await stage.asked(), "once")
        assert (await first).output == "asked\n"
        second = asyncio.ensure_future(command())
        await stage.client.answer_permission(await stage.asked(), "reject")
        refused = await second
        assert refused.status == "error" and "rejected permission" in (refused.error or "")

        begun = await command(wait=False)
        assert (begun.status, begun.tool, begun.origin) == ("running", "bash", "execute_tool")
        asked = await stage.asked()
        assert [one.asked_by != one.session_id for one in await stage.sessions.asks(stage.session)] == [True]
        assert await stage.noted(begun, "running")
        await stage.client.answer_permission(asked, "once")
        done = await stage.noted(begun, "completed")
        assert (done.output, done.session_id, done.origin) == ("asked\n", stage.session, "execute_tool")
        history = await stage.sessions.tool_history(stage.session)
        assert [one.status for one in history] == ["completed", "error", "completed"]
        assert {one.parent for one in await stage.sessions.list()} == {None}

        denied = await stage.refused("write", filePath=str(stage.folder / "x"), content="x")
        assert denied.code == "tool-denied" and not (stage.folder / "x").exists()
        secret = await stage.run("read", filePath=str(stage.folder / "a.secret"))
        assert secret.status == "error" and "rule" in (secret.error or "")

        # The rules of the session's agent hold too: one that plans writes no files.
        for agent, status in (("plan", "error"), ("build", "completed")):
            await stage.begin(agent=agent)
            file = stage.folder / f"of-{agent}.txt"
            try:
                found = (await stage.run("write", filePath=str(file), content="x\n")).status
            except RookeryError as error:
                assert error.code == "tool-denied"
                found = "error"
            assert (found, file.exists()) == (status, status == "completed")


@requirement("session.exec.real")
async def test_a_tool_that_is_late_or_no_longer_wanted_is_ended_and_the_next_one_runs() -> None:
    async with a_stage(pace=SupervisionIntervals(first_pause=0.1)) as stage:
        left = stage.folder / "left"
        slow = {"command": f"sleep 600 & echo $! > pid; echo begun; wait; touch {left}", "description": "sleep"}

        def begin(seconds: float) -> asyncio.Future[ToolRun]:
            return asyncio.ensure_future(
                stage.executor.execute(stage.life, stage.session, "bash", slow, timeout=seconds)
            )

        assert (await stage.run("bash", command="echo first", description="first")).output == "first\n"
        late = begin(5)
        sleeper = await stage.sleeper()
        with pytest.raises(RookeryError, match="bash runs") as caught:
            await late
        assert caught.value.code == "timeout"
        sleeper.wait(LIMIT)

        unwanted = begin(LIMIT)
        sleeper = await stage.sleeper()
        unwanted.cancel()
        with pytest.raises(asyncio.CancelledError):
            await unwanted
        await asyncio.to_thread(sleeper.wait, LIMIT)
        assert (await stage.run("bash", command="echo next", description="next")).output == "next\n"

        for delete in (True, False):
            closed = begin(LIMIT)
            sleeper = await stage.sleeper()
            if delete:
                await stage.client.delete_session(stage.session)
            else:
                await stage.client.archive_session(stage.session, 1.0)
            with pytest.raises(RookeryError, match="was closed while bash ran"):
                await closed
            await asyncio.to_thread(sleeper.wait, LIMIT)
            await stage.begin()

        for child in await stage.children():
            await stage.client.delete_session(child.id)
        assert (await stage.run("bash", command="echo next", description="next")).output == "next\n"

        cut = begin(LIMIT)
        await stage.sleeper()
        killed = stage.life.process.pid
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(RookeryError, match="bash did not finish") as caught:
            await cut
        assert caught.value.code == "agent-unavailable"
        await stage.host.until(stage.workspace, lambda agent: agent.pid not in (killed, None))
        stage.life = await stage.host.agents.ensure_running(stage.workspace)
        assert (await stage.run("bash", command="echo again", description="again")).output == "again\n"
        assert not left.exists()
