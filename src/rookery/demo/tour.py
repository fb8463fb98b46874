"""The tour of the demo: creates workspaces, has agents work in them, and collects their changes."""

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from rookery.demo.folder import DemoFolder, find_sandbox_mode
from rookery.demo.progress import StepProgress
from rookery.demo.report import AgentReport, Report
from rookery.demo.scenario import SERVER, TASKS, Task
from rookery.sdk import Rookery, Session, Workspace
from rookery.sessions.records import Screenshot, ToolRun, Turn
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet

T = TypeVar("T")

# The limit of each wait, for slow machines. It is reached only if something is wrong.
_SECONDS = 180.0
# How long to wait until a reported toast is also drawn.
_DRAWN_SECONDS = 10.0
# The size of the terminals in screenshots.
_COLUMNS = 100
_ROWS = 32


class Tour:
    """Runs both tasks of the scenario over the SDK, and reports each step."""

    def __init__(self, rookery: Rookery, demo_folder: DemoFolder, progress: StepProgress) -> None:
        self._rookery = rookery
        self._folder = demo_folder
        self._progress = progress

    async def run(self, opencode: str, pictures: Path, started_at: float) -> Report:
        async with self._progress.step(f"The project greeter, and the MCP server {SERVER}"):
            project = await self._rookery.projects.add(self._folder.project)
            tools = await self._rookery.hub.tools(workspace=self._folder.project)
            server = (await self._rookery.hub.servers(self._folder.project))[SERVER]
            self._progress.line(f"{SERVER} is {server['status']}, speaks {server['era']}, offers {', '.join(tools)}")
        async with self._progress.step("Two workspaces, with an agent in each"):
            workspaces = await run_together([self._create_workspace(task, project.id) for task in TASKS])
        async with self._progress.step("A session with each agent, in a terminal"):
            sessions = await run_together([self._start_session(*pair) for pair in zip(TASKS, workspaces, strict=True)])
        async with self._progress.step("Both agents work side by side"):
            finished = await run_together(
                [self._run_task(*pair, pictures) for pair in zip(TASKS, sessions, strict=True)]
            )
        async with self._progress.step("The changes"):
            agents = await run_together(
                [self._collect_changes(*pair) for pair in zip(workspaces, finished, strict=True)]
            )
        daemon = (await self._rookery.status())["daemon"]
        return Report(
            folder=self._folder.folder,
            home=self._folder.state,
            url=daemon["url"],
            opencode=opencode,
            sandbox=find_sandbox_mode(),
            server={key: server[key] for key in ("name", "status", "era", "tools")},
            agents=agents,
            seconds=round(SYSTEM_CLOCK.monotonic() - started_at, 1),
        )

    async def _create_workspace(self, task: Task, project: str) -> Workspace:
        workspace = await self._rookery.workspaces.create(task.workspace, project=project)
        self._progress.line(f"{workspace.name}: a worktree on its own branch")
        agent = await workspace.start_agent()
        self._progress.line(f"{workspace.name}: OpenCode listens on port {agent.port}")
        return workspace

    async def _start_session(self, task: Task, workspace: Workspace) -> Session:
        session = await workspace.sessions.create(title=task.prompt)
        # A screenshot opens the terminal. It has to be open before the prompt is sent, so that the toast is on it.
        picture = await session.screenshot(columns=_COLUMNS, rows=_ROWS)
        self._progress.line(f"{workspace.name}: its {picture.source} has {_COLUMNS} columns and {_ROWS} rows")
        return session

    async def _run_task(self, task: Task, session: Session, pictures: Path) -> "_FinishedTask":
        """Send the prompt, wait for the toast after it, take a picture of both, and report each step."""
        name = task.workspace
        started_at = SYSTEM_CLOCK.wall()
        self._progress.line(f"{name}: prompt “{task.prompt}”")
        tasks = TaskSet("demo")
        try:
            follower = tasks.start(self._follow(task, session, started_at), name)
            turn = await session.send(task.prompt, timeout=_SECONDS)
            await follower
        finally:
            await tasks.close()
        self._progress.line(f"{name}: “{turn.content.splitlines()[-1]}”")
        result = await session.wait_for_toast(name, _SECONDS, since=started_at)
        assert result.toast is not None
        self._progress.line(f"{name}: toast “{result.toast.title}: {result.toast.message}”", "cyan")
        # Without a terminal no toast is drawn. The picture's source says whether there is one.
        with contextlib.suppress(RookeryError):
            await session.wait_for_screen("ready for review", _DRAWN_SECONDS)
        picture = await session.screenshot(pictures / f"{name}.png")
        subject = "its terminal" if picture.source == "terminal" else f"its conversation ({picture.note})"
        self._progress.line(f"{name}: a picture of {subject} is in {picture.saved_to}")
        return _FinishedTask(task, session, turn, result.toast.message, picture)

    async def _follow(self, task: Task, session: Session, since: float) -> None:
        """Report each tool run of the task when it has ended."""
        for tool in task.tools:
            result = await session.wait_for_tool(tool, _SECONDS, since=since)
            assert result.tool is not None
            since = (result.tool.end or 0) / 1000
            self._progress.line(f"{task.workspace}: {_describe_tool_run(result.tool)}")

    async def _collect_changes(self, workspace: Workspace, finished: "_FinishedTask") -> AgentReport:
        diff = await workspace.diff()
        files = [file["path"] for file in diff["files"]]
        if not files:
            raise RookeryError("internal-error", f"the agent of {workspace.name} changed no files")
        self._progress.line(f"{workspace.name}: {', '.join(files)}")
        return AgentReport(
            workspace=workspace.name,
            path=workspace.path,
            session=finished.session.id,
            prompt=finished.task.prompt,
            said=finished.turn.content,
            tools=[run.tool for run in finished.turn.parts],
            files=files,
            patch=diff["text"],
            toast=finished.toast,
            screenshot=finished.picture.saved_to or "",
            screenshot_of=finished.picture.source,
        )


class _FinishedTask(NamedTuple):
    task: Task
    session: Session
    turn: Turn
    toast: str
    picture: Screenshot


async def run_together(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all coroutines at once and return their results. If one fails, cancel the others and raise its error."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _describe_tool_run(run: ToolRun) -> str:
    arguments = cast("dict[str, Any]", run.input or {})
    description = run.title or " ".join(f"{key}={value}" for key, value in arguments.items())
    suffix = " (an MCP tool, through the gateway)" if run.tool.startswith(f"{SERVER}_") else ""
    return f"{run.tool} {description}{suffix}"
