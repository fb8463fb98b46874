"""The routes about sessions: life cycle, messages, waits, toasts, tools, asks and screens. Times are in milliseconds.

No process that Rookery started may answer an ask, nor press keys, which could answer one.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send as ASGISend

from rookery.api.requests import (
    HandlerWrapper,
    RawRoute,
    cancel_with_client,
    json_response,
    read_body,
    read_flag,
    read_number,
    read_query,
)
from rookery.api.streams import encode_event
from rookery.sessions.drawing.screenshot import choose_format, choose_size, take_screenshot
from rookery.sessions.records import Turn, TurnUpdate, WaitResult
from rookery.sessions.service import Sessions
from rookery.system.errors import RookeryError

_ASK_PATH = "/api/sessions/{id}/asks"

_SESSION_PATH = "/api/sessions/{id}"
_HISTORY = 20
SESSION_PATH = "/api/sessions/{id}"
_LIMIT = 50


class AnswerAsk(msgspec.Struct, forbid_unknown_fields=True):
    """The answer to an ask: `reply` for a permission, `answers` for questions, with the chosen labels of each."""

    reply: Literal["once", "always", "reject"] | None = None
    answers: list[list[str]] | None = None
    message: str | None = None


def ask_routes(sessions: Sessions) -> list[Route]:
    routes = AskRoutes(sessions)
    return [
        Route("/api/sessions/asks", routes.list),
        RawRoute("/api/sessions/asks/{ask}", routes.answer, methods=["POST"]),
        RawRoute(_ASK_PATH, routes.list),
        RawRoute(f"{_ASK_PATH}/{{ask}}", routes.answer, methods=["POST"]),
    ]


class AskRoutes:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def list(self, request: Request) -> Response:
        """The asks of a session, or of all sessions: permissions and questions, with the words to answer with."""
        return json_response(await self._sessions.asks(request.path_params.get("id")))

    async def answer(self, request: Request) -> Response:
        """Answer an ask of a session; returns the ask. Refused to processes that Rookery has started."""
        body = await read_body(request, AnswerAsk)
        ask = await self._sessions.answer(
            request.path_params["ask"], body.reply, answers=body.answers, message=body.message
        )
        return json_response(ask)


class PressKeys(msgspec.Struct, forbid_unknown_fields=True):
    """The input for a terminal: `text` is typed, then `paste` is pasted, then `keys` such as `ctrl+p` are pressed."""

    text: str = ""
    paste: str = ""
    keys: list[str] = []
    columns: int | None = None
    rows: int | None = None


def screen_routes(sessions: Sessions, record_view: HandlerWrapper) -> list[Route]:
    routes = ScreenRoutes(sessions)
    return [
        Route("/api/sessions/screen", routes.screen),
        RawRoute(f"{_SESSION_PATH}/screen", record_view(routes.screen)),
        RawRoute(f"{_SESSION_PATH}/keys", routes.keys, methods=["POST"]),
    ]


class ScreenRoutes:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def screen(self, request: Request) -> Response:
        """The screen of a session, or of the most recently active one; `?columns=`, `?rows=`, `?colours=true`."""
        cancel_with_client(request)
        size = choose_size(read_number(request, "columns"), read_number(request, "rows"))
        colours = read_flag(request, "colours")
        return json_response(await self._sessions.screen(request.path_params.get("id"), size=size, colours=colours))

    async def keys(self, request: Request) -> Response:
        """Type, paste and press keys in the terminal; returns the screen. Refused to processes Rookery has started."""
        body = await read_body(request, PressKeys)
        if not (body.text or body.paste or body.keys):
            raise RookeryError("invalid-input", "there is nothing to press", "send text, paste or keys")
        cancel_with_client(request)
        screen = await self._sessions.press(
            request.path_params["id"],
            text=body.text,
            paste=body.paste,
            keys=body.keys,
            size=choose_size(body.columns, body.rows),
        )
        return json_response(screen)


def screenshot_routes(sessions: Sessions, record_view: HandlerWrapper) -> list[Route]:
    routes = ScreenshotRoutes(sessions)
    return [
        Route("/api/sessions/screenshot", routes.screenshot),
        RawRoute("/api/sessions/{id}/screenshot", record_view(routes.screenshot)),
    ]


class ScreenshotRoutes:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def screenshot(self, request: Request) -> Response:
        """A picture of the screen; `?format=` png or svg, `?columns=`, `?rows=`, `?scale=`; `?json=true` for JSON."""
        cancel_with_client(request)
        scale = read_number(request, "scale")
        shot = await take_screenshot(
            self._sessions,
            request.path_params.get("id"),
            format=choose_format(read_query(request, "format"), None),
            size=choose_size(read_number(request, "columns"), read_number(request, "rows")),
            scale=int(scale) if scale is not None else 1,
        )
        if read_flag(request, "json"):
            return json_response(shot.make_data())
        headers = {"X-Rookery-Source": shot.capture.source, "X-Rookery-Session": shot.capture.ref.id}
        if shot.capture.note is not None:
            # A header may contain only ASCII characters.
            headers["X-Rookery-Note"] = "".join(char if " " <= char <= "~" else "?" for char in shot.capture.note)
        return Response(shot.picture.data, media_type=shot.picture.media_type, headers=headers)


class WaitRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What to wait for. `pattern` is a regular expression; nothing before the time `since` counts."""

    what: Literal["message", "toast", "idle", "tool", "file", "screen"] = msgspec.field(name="for")
    pattern: str | None = None
    tool: str | None = None
    path: str | None = None
    role: Literal["user", "assistant"] | None = None
    since: float | None = None
    timeout: float = 30_000


class RunTool(msgspec.Struct, forbid_unknown_fields=True):
    tool: str
    args: dict[str, Any] = {}
    wait: bool = True
    timeout: float = 120_000


class ShowToast(msgspec.Struct, forbid_unknown_fields=True):
    message: str
    title: str | None = None
    variant: Literal["info", "success", "warning", "error"] = "info"
    duration: int = 5000


def work_routes(sessions: Sessions, record_view: HandlerWrapper) -> list[Route]:
    routes = WorkRoutes(sessions)
    return [
        Route("/api/sessions/toasts", routes.toasts),
        Route("/api/sessions/tools", routes.history),
        RawRoute(f"{_SESSION_PATH}/wait", record_view(routes.wait), methods=["POST"]),
        RawRoute(f"{_SESSION_PATH}/toasts", routes.toasts),
        RawRoute(f"{_SESSION_PATH}/toasts", routes.show_toast, methods=["POST"]),
        RawRoute(f"{_SESSION_PATH}/tools", routes.history),
        RawRoute(f"{_SESSION_PATH}/tools", routes.execute, methods=["POST"]),
    ]


class WorkRoutes:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def wait(self, request: Request) -> Response:
        """Wait `for` a message, toast, idle, the end of a tool, a file or the screen; `found` is false on timeout."""
        body = await read_body(request, WaitRequest)
        cancel_with_client(request)
        return json_response(await self._wait(request.path_params["id"], body))

    async def _wait(self, id_: str, body: WaitRequest) -> WaitResult:
        sessions, seconds = self._sessions, body.timeout / 1000
        match body.what:
            case "message":
                pattern = _require(body.pattern, "pattern")
                return await sessions.wait_for_message(id_, pattern, seconds, role=body.role, since=body.since)
            case "toast":
                return await sessions.wait_for_toast(id_, _require(body.pattern, "pattern"), seconds, since=body.since)
            case "idle":
                return await sessions.wait_for_idle(id_, seconds)
            case "tool":
                return await sessions.wait_for_tool(id_, body.tool, seconds, pattern=body.pattern, since=body.since)
            case "file":
                return await sessions.wait_for_file(id_, _require(body.path, "path"), seconds, pattern=body.pattern)
            case "screen":
                return await sessions.wait_for_screen(id_, _require(body.pattern, "pattern"), seconds)

    async def toasts(self, request: Request) -> Response:
        """The visible toasts of a session, or of all; with `?since=` also those that are no longer visible."""
        return json_response(await self._sessions.toasts(request.path_params.get("id"), read_number(request, "since")))

    async def show_toast(self, request: Request) -> Response:
        """Show a toast in the session's workspace."""
        body = await read_body(request, ShowToast)
        await self._sessions.show_toast(
            request.path_params["id"], body.message, title=body.title, variant=body.variant, duration=body.duration
        )
        return json_response({"shown": True})

    async def history(self, request: Request) -> Response:
        """The newest `?limit=` tool runs (20) of a session, or of all, in the order of their start."""
        limit = read_number(request, "limit")
        count = _HISTORY if limit is None else max(int(limit), 0)
        return json_response(await self._sessions.tool_history(request.path_params.get("id"), count))

    async def execute(self, request: Request) -> Response:
        """Run a tool of the agent with the session's permissions, outside its conversation; see its `status`."""
        body = await read_body(request, RunTool)
        cancel_with_client(request)
        run = await self._sessions.execute(
            request.path_params["id"], body.tool, body.args, wait=body.wait, timeout=body.timeout / 1000
        )
        return json_response(run, 200 if body.wait else 202)


def _require(value: str | None, name: str) -> str:
    if value is None:
        raise RookeryError("invalid-input", f"{name} is missing", f"send {name} along with `for`")
    return value


class CreateSession(msgspec.Struct, forbid_unknown_fields=True):
    """A new session. `directory` is the path of a workspace, or of a folder in it, which selects the workspace."""

    directory: str
    agent: str | None = None
    model: str | None = None
    title: str | None = None


class SendMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message. Without `wait` the response comes once the message is accepted.

    With `stream` the response is a stream of events.
    """

    content: str
    wait: bool = True
    stream: bool = False
    timeout: float = 30_000
    agent: str | None = None
    model: str | None = None


def session_routes(sessions: Sessions, record_view: HandlerWrapper) -> list[Route]:
    """Return all routes about sessions; `record_view` wraps those by which a user views a session."""
    routes = SessionRoutes(sessions)
    return [
        Route("/api/sessions", routes.list),
        Route("/api/sessions", routes.create, methods=["POST"]),
        *work_routes(sessions, record_view),
        *ask_routes(sessions),
        *screen_routes(sessions, record_view),
        *screenshot_routes(sessions, record_view),
        RawRoute(SESSION_PATH, record_view(routes.show)),
        RawRoute(SESSION_PATH, routes.close, methods=["DELETE"]),
        RawRoute(f"{SESSION_PATH}/abort", routes.abort, methods=["POST"]),
        RawRoute(f"{SESSION_PATH}/messages", record_view(routes.messages)),
        RawRoute(f"{SESSION_PATH}/messages", record_view(routes.send), methods=["POST"]),
    ]


class SessionRoutes:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def list(self, request: Request) -> Response:
        """All open sessions, the most recently used first; `?project=` and `?workspace=` filter by id and name.

        With both of them, the sessions of an agent that is starting are waited for.
        """
        project, workspace = read_query(request, "project"), read_query(request, "workspace")
        if project is not None and workspace is not None:
            return json_response(await self._sessions.list_in(project, workspace))
        matching = [
            session
            for session in await self._sessions.list()
            if project in (None, session.project) and workspace in (None, session.workspace)
        ]
        return json_response(matching)

    async def create(self, request: Request) -> Response:
        """Create a session in the workspace at `directory`; starts its agent if necessary."""
        body = await read_body(request, CreateSession)
        return json_response(await self._sessions.create(body.directory, body.agent, body.model, title=body.title), 201)

    async def show(self, request: Request) -> Response:
        """A session: its state, number of messages, time of last activity, and the failure of its last turn."""
        return json_response(await self._sessions.get(request.path_params["id"]))

    async def close(self, request: Request) -> Response:
        """Close a session: its turn and all waits for it end. `?delete=true` deletes its history too."""
        return json_response(await self._sessions.close(request.path_params["id"], delete=read_flag(request, "delete")))

    async def abort(self, request: Request) -> Response:
        """Abort the running turn, if there is one; returns the session."""
        return json_response(await self._sessions.abort(request.path_params["id"]))

    async def messages(self, request: Request) -> Response:
        """The newest `?limit=` messages (50), in the order of their creation, after `?since=`.

        If older messages are left out, `before` in the response is an id: `?before=` with that id returns the previous
        page.
        """
        limit, since, before = (
            read_number(request, "limit"),
            read_number(request, "since"),
            read_query(request, "before"),
        )
        count = _LIMIT if limit is None else max(int(limit), 0)
        return json_response(await self._sessions.messages(request.path_params["id"], count, since, before=before))

    async def send(self, request: Request) -> Response:
        """Send a message; returns at the end of the turn, at `timeout`, or without `wait` immediately. See `status`.

        With `stream`, server-sent events report the progress: `taken`, `text`, `tool` and `ask`, and finally the
        `turn`.
        """
        body = await read_body(request, SendMessage)
        cancel_with_client(request)
        send = partial(
            self._sessions.send,
            request.path_params["id"],
            body.content,
            wait=body.wait,
            timeout=body.timeout / 1000,
            agent=body.agent,
            model=body.model,
        )
        if body.stream:
            return TurnStream(send)
        return json_response(await send(), 200 if body.wait else 202)


class TurnStream(Response):
    """The result of a message as server-sent events. An error before the first event is a normal response."""

    def __init__(self, send_message: Callable[..., Awaitable[Turn]]) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-store"})
        self._send_message = send_message
        # The length of a stream is not known.
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: ASGISend) -> None:
        started = False

        async def emit(kind: str, data: object, *, last: bool = False) -> None:
            nonlocal started
            if not started:
                started = True
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": encode_event(kind, data), "more_body": not last})

        async def report(update: TurnUpdate) -> None:
            await emit(update.kind, update)

        try:
            turn = await self._send_message(report=report)
        except RookeryError as error:
            if not started:
                raise
            await emit("error", {"error": error.as_dict()}, last=True)
        else:
            await emit("turn", turn, last=True)
