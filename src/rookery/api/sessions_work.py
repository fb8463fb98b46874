"""The routes about what happens in sessions: waits, toasts, and the tools that ran or are to run."""

from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api.answers import answer, body_of
from rookery.api.queries import ends_with_client, number
from rookery.api.raw_route import RawRoute
from rookery.sessions.records import Waited
from rookery.sessions.service import Sessions
from rookery.system.errors import RookeryError

_ONE = "/api/sessions/{id}"
_HISTORY = 20


class Wait(msgspec.Struct, forbid_unknown_fields=True):
    """`pattern` is a regular expression; `since` a moment before which nothing counts."""

    what: Literal["message", "toast", "idle", "tool", "file", "screen"] = msgspec.field(name="for")
    pattern: str | None = None
    tool: str | None = None
    path: str | None = None
    role: Literal["user", "assistant"] | None = None
    since: float | None = None
    timeout: float = 30_000


class Run(msgspec.Struct, forbid_unknown_fields=True):
    tool: str
    args: dict[str, Any] = {}
    wait: bool = True
    timeout: float = 120_000


class Show(msgspec.Struct, forbid_unknown_fields=True):
    message: str
    title: str | None = None
    variant: Literal["info", "success", "warning", "error"] = "info"
    duration: int = 5000


def routes(sessions: Sessions) -> list[Route]:
    made = WorkRoutes(sessions)
    return [
        Route("/api/sessions/toasts", made.toasts),
        Route("/api/sessions/tools", made.history),
        RawRoute(f"{_ONE}/wait", made.wait, methods=["POST"]),
        RawRoute(f"{_ONE}/toasts", made.toasts),
        RawRoute(f"{_ONE}/toasts", made.show_toast, methods=["POST"]),
        RawRoute(f"{_ONE}/tools", made.history),
        RawRoute(f"{_ONE}/tools", made.execute, methods=["POST"]),
    ]


class WorkRoutes:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def wait(self, request: Request) -> Response:
        """Wait `for` a message, toast, idle, tool's end, file or the screen; `found` is false where time ran out."""
        asked = await body_of(request, Wait)
        ends_with_client(request)
        return answer(await self._wait(request.path_params["id"], asked))

    async def _wait(self, id_: str, asked: Wait) -> Waited:
        sessions, seconds = self._sessions, asked.timeout / 1000
        match asked.what:
            case "message":
                pattern = _needed(asked.pattern, "pattern")
                return await sessions.wait_for_message(id_, pattern, seconds, role=asked.role, since=asked.since)
            case "toast":
                return await sessions.wait_for_toast(id_, _needed(asked.pattern, "pattern"), seconds, since=asked.since)
            case "idle":
                return await sessions.wait_for_idle(id_, seconds)
            case "tool":
                return await sessions.wait_for_tool(id_, asked.tool, seconds, pattern=asked.pattern, since=asked.since)
            case "file":
                return await sessions.wait_for_file(id_, _needed(asked.path, "path"), seconds, pattern=asked.pattern)
            case "screen":
                return await sessions.wait_for_screen(id_, _needed(asked.pattern, "pattern"), seconds)

    async def toasts(self, request: Request) -> Response:
        """The toasts on show in a session's workspace, or in all; with `?since=` also those gone by now."""
        return answer(await self._sessions.toasts(request.path_params.get("id"), number(request, "since")))

    async def show_toast(self, request: Request) -> Response:
        """Show a toast in the session's workspace."""
        asked = await body_of(request, Show)
        await self._sessions.show_toast(
            request.path_params["id"], asked.message, title=asked.title, variant=asked.variant, duration=asked.duration
        )
        return answer({"shown": True})

    async def history(self, request: Request) -> Response:
        """The newest `?limit=` runs of tools (20) in a session, or in all, in the order they began."""
        limit = number(request, "limit")
        count = _HISTORY if limit is None else max(int(limit), 0)
        return answer(await self._sessions.tool_history(request.path_params.get("id"), count))

    async def execute(self, request: Request) -> Response:
        """Run a tool of the agent, with the session's permissions and beside its conversation; see its `status`."""
        asked = await body_of(request, Run)
        ends_with_client(request)
        run = await self._sessions.execute(
            request.path_params["id"], asked.tool, asked.args, wait=asked.wait, timeout=asked.timeout / 1000
        )
        return answer(run, 200 if asked.wait else 202)


def _needed(value: str | None, name: str) -> str:
    if value is None:
        raise RookeryError("invalid-input", f"{name} is missing", f"send {name} along with `for`")
    return value
