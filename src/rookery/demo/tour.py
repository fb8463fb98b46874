"""The tour itself: workspaces are made, agents work in them, and what they did is looked at."""

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from rookery.demo.place import Place
from rookery.demo.report import Report, Worked
from rookery.demo.story import SERVER, TASKS, Task
from rookery.demo.telling import Telling
from rookery.face import Rookery, Session, Workspace
from rookery.sessions.records import ToolRun, Turn
from rookery.sessions.shot_records import Screenshot
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet

T = TypeVar("T")

# A machine may be slow, and nothing here waits for long unless something is wrong.
_SECONDS = 180.0
# Until a toast that was told of is drawn too.
_DRAWN_SECONDS = 10.0
# Of the terminals that are photographed.
_COLUMNS, _ROWS = 100, 32


class Tour:
    def __init__(self, rookery: Rookery, place: Place, telling: Telling) -> None:
        self._rookery, self._place, self._telling = rookery, place, telling

    async def run(self, opencode: str, pictures: Path, began: float) -> Report:
        async with self._telling.step(f"The project greeter, and the MCP server {SERVER}"):
            project = await self._rookery.projects.add(self._place.project)
            tools = await self._rookery.hub.tools(workspace=self._place.project)
            server = (await self._rookery.hub.servers(self._place.project))[SERVER]
            self._telling.line(f"{SERVER} is {server['status']}, speaks {server['era']}, offers {', '.join(tools)}")
        async with self._telling.step("Two workspaces, with an agent in each"):
            rooms = await together([self._make(task, project.id) for task in TASKS])
        async with self._telling.step("A session with each of them, in a terminal"):
            sessions = await together([self._begin(*one) for one in zip(TASKS, rooms, strict=True)])
        async with self._telling.step("Both agents work side by side"):
            done = await together([self._work(*one, pictures) for one in zip(TASKS, sessions, strict=True)])
        async with self._telling.step("What they changed"):
            worked = await together([self._look(*one) for one in zip(rooms, done, strict=True)])
        daemon = (await self._rookery.status())["daemon"]
        return Report(
            folder=self._place.folder,
            home=self._place.state,
            url=daemon["url"],
            opencode=opencode,
            server={key: server[key] for key in ("name", "status", "era", "tools")},
            agents=worked,
            seconds=round(SYSTEM_CLOCK.monotonic() - began, 1),
        )

    async def _make(self, task: Task, project: str) -> Workspace:
        made = await self._rookery.workspaces.create(task.workspace, project=project)
        self._telling.line(f"{made.name}: a worktree on its own branch")
        agent = await made.start_agent()
        self._telling.line(f"{made.name}: OpenCode listens on port {agent.port}")
        return made

    async def _begin(self, task: Task, room: Workspace) -> Session:
        session = await room.sessions.create(title=task.prompt)
        # Its terminal is opened before anything happens, so that the toast is on it.
        picture = await session.screenshot(columns=_COLUMNS, rows=_ROWS)
        self._telling.line(f"{room.name}: its {picture.source} has {_COLUMNS} columns and {_ROWS} rows")
        return session

    async def _work(self, task: Task, session: Session, pictures: Path) -> "_Done":
        """What came of the prompt, the toast after it, and a picture of both; told as it happens."""
        name = task.workspace
        began = SYSTEM_CLOCK.wall()
        self._telling.line(f"{name}: asked to “{task.prompt}”")
        following = TaskSet("demo")
        try:
            told = following.start(self._follow(task, session, began), name)
            turn = await session.send(task.prompt, timeout=_SECONDS)
            await told
        finally:
            await following.close()
        self._telling.line(f"{name}: “{turn.content.splitlines()[-1]}”")
        waited = await session.wait_for_toast(name, _SECONDS, since=began)
        assert waited.toast is not None
        self._telling.line(f"{name}: toast “{waited.toast.title}: {waited.toast.message}”", "cyan")
        # Where there is no terminal there is no toast on it either; the picture tells which it is.
        with contextlib.suppress(RookeryError):
            await session.wait_for_screen("ready for review", _DRAWN_SECONDS)
        picture = await session.screenshot(pictures / f"{name}.png")
        of = "its terminal" if picture.source == "terminal" else f"its conversation ({picture.note})"
        self._telling.line(f"{name}: a picture of {of} is {picture.saved_to}")
        return _Done(task, session, turn, waited.toast.message, picture)

    async def _follow(self, task: Task, session: Session, since: float) -> None:
        for tool in task.tools:
            waited = await session.wait_for_tool(tool, _SECONDS, since=since)
            assert waited.tool is not None
            since = (waited.tool.end or 0) / 1000
            self._telling.line(f"{task.workspace}: {_told(waited.tool)}")

    async def _look(self, room: Workspace, done: "_Done") -> Worked:
        changed = await room.diff()
        files = [one["path"] for one in changed["files"]]
        if not files:
            raise RookeryError("internal-error", f"the agent of {room.name} has changed nothing")
        self._telling.line(f"{room.name}: {', '.join(files)}")
        return Worked(
            workspace=room.name,
            path=room.path,
            session=done.session.id,
            prompt=done.task.prompt,
            said=done.turn.content,
            tools=[run.tool for run in done.turn.parts],
            files=files,
            patch=changed["text"],
            toast=done.toast,
            screenshot=done.picture.saved_to or "",
            screenshot_of=done.picture.source,
        )


class _Done(NamedTuple):
    task: Task
    session: Session
    turn: Turn
    toast: str
    picture: Screenshot


async def together(all_: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """What all of them come to. Where one fails the others are called off, and its error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in all_]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _told(run: ToolRun) -> str:
    given = cast("dict[str, Any]", run.input or {})
    about = run.title or " ".join(f"{key}={value}" for key, value in given.items())
    through = " (an MCP tool, through the gateway)" if run.tool.startswith(f"{SERVER}_") else ""
    return f"{run.tool} {about}{through}"
