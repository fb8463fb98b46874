"""The operations on the terminals of sessions: read the screen, press keys, take and save pictures."""

from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Protocol

from msgspec import Meta

from rookery.files.sandbox import SandboxRoot
from rookery.files.save import require_savable, save_file_in_thread
from rookery.operations.operation import Caller, McpTool, Parameters, RestRoute, operation
from rookery.operations.results import Binary, NotedResult
from rookery.operations.sessions import SESSION_NAME, SESSION_PATH, TIME_LIMIT, Session
from rookery.sessions.drawing.picture import is_rookery_picture
from rookery.sessions.drawing.screenshot import SessionPicture, choose_format, choose_size, take_screenshot
from rookery.sessions.index import SessionRef
from rookery.sessions.records import Screenshot, ScreenshotData, ScreenState
from rookery.sessions.service import Sessions
from rookery.system.errors import RookeryError

_SAVE = (
    "Where to save it: in the session's workspace, relative to its root, or an absolute path in there, in the state "
    "folder or in a folder of the setting sessions.save_roots. Only a picture that this tool saved earlier is replaced"
)
_SAVE_REMEDY = (
    "name a file in the session's workspace, or have the user add its folder to the setting sessions.save_roots"
)

LastSession = Annotated[str | None, Meta(description="Id of the session; default: the one active last")]


class GetScreen(Parameters):
    session: LastSession = None
    columns: Annotated[float | None, Meta(description="Width of the terminal, in characters")] = None
    rows: Annotated[float | None, Meta(description="Height of the terminal, in lines")] = None
    colours: Annotated[bool, Meta(description="If true, also return the rows with their colours, as `runs`")] = False


class PressKeys(Parameters):
    session: Session
    text: Annotated[str, Meta(description="Text to type first")] = ""
    paste: Annotated[str, Meta(description="Text to paste then; it may have several lines")] = ""
    keys: Annotated[Sequence[str], Meta(description="Keys to press after that, such as enter or ctrl+p")] = ()
    columns: Annotated[int | None, Meta(description="Width of the terminal, in characters")] = None
    rows: Annotated[int | None, Meta(description="Height of the terminal, in lines")] = None


class TakeScreenshot(Parameters):
    session: LastSession = None
    format: Annotated[Literal["png", "svg"] | None, Meta(description="Default: png")] = None
    columns: Annotated[float | None, Meta(description="Width of the terminal, in characters")] = None
    rows: Annotated[float | None, Meta(description="Height of the terminal, in lines")] = None
    scale: Annotated[int, Meta(description="Scale factor of the picture: 1, 2 or 3")] = 1
    json: Annotated[
        bool, Meta(description="If true, return JSON with the picture as base64", extra={"form": "json"})
    ] = False


class SaveScreenshot(Parameters):
    session: LastSession = None
    save_path: Annotated[str | None, Meta(description=_SAVE)] = None
    format: Annotated[Literal["png", "svg"] | None, Meta(description="Default: what savePath ends in, else png")] = None
    columns: Annotated[float | None, Meta(description="Width of the terminal, in characters")] = None
    rows: Annotated[float | None, Meta(description="Height of the terminal, in lines")] = None
    scale: Annotated[int, Meta(description="Scale factor of the picture: 1, 2 or 3")] = 1


class SaveFolders(Protocol):
    """The folders in which pictures may be saved."""

    async def workspace(self, directory: Path) -> SandboxRoot:
        """Return the sandbox of the workspace at `directory`; the caller does not close it."""
        ...

    async def find_outside_workspaces(self, path: str) -> tuple[SandboxRoot, str] | None:
        """Return a sandbox outside of workspaces that contains a path, and the path in it. The caller closes it."""
        ...


@dataclass(frozen=True)
class SavedPicture:
    """A picture, and the file that it was saved to."""

    shot: SessionPicture
    saved_to: Path | None = None


def _present_picture(picture: SavedPicture) -> NotedResult:
    """Return the record of a picture, followed by the picture itself as a content block."""
    return NotedResult(picture.shot.make_record(saved_to=picture.saved_to), blocks=[_picture_block(picture.shot)])


def _picture_block(shot: SessionPicture) -> Mapping[str, Any]:
    picture = shot.picture
    if picture.format == "png":
        return {"type": "image", "data": b64encode(picture.data).decode(), "mimeType": picture.media_type}
    resource = {
        "uri": f"screenshot://{shot.capture.ref.id}",
        "mimeType": picture.media_type,
        "text": picture.data.decode(),
    }
    return {"type": "resource", "resource": resource}


class ScreenOperations:
    """The operations on screens. `record_view` is called with the id of a session that the user has viewed."""

    group = "session"

    def __init__(self, sessions: Sessions, record_view: Callable[[str], None], save_folders: SaveFolders) -> None:
        self._sessions = sessions
        self._record_view = record_view
        self._save_folders = save_folders

    @operation(
        access="workspace",
        changes=False,
        cancellable=True,
        time_limit=TIME_LIMIT,
        rest=RestRoute("GET", f"{SESSION_PATH}/screen", short_path="/api/sessions/screen"),
        mcp=McpTool(
            "session",
            "get_tui_state",
            "Get TUI (Terminal UI) current state: the text, cursor and title of the session's terminal, and where "
            "prompt, dialog, toast, sidebar and status line are, if they can be detected. Without a terminal, "
            "source is rendering: the conversation as Rookery draws it.",
            names=SESSION_NAME,
        ),
        python="Session.screen",
    )
    async def screen(self, caller: Caller, arguments: GetScreen) -> ScreenState:
        """The screen of a session, or of the most recently active one; `?columns=`, `?rows=`, `?colours=true`."""
        size = choose_size(arguments.columns, arguments.rows)
        state = await self._sessions.screen(
            arguments.session, caller.scope, size=size, colours=arguments.colours, progress=caller.progress
        )
        return self._viewed(caller, arguments.session, state)

    @operation(
        cancellable=True,
        time_limit=TIME_LIMIT,
        rest=RestRoute("POST", f"{SESSION_PATH}/keys"),
        mcp=McpTool(
            "session",
            "press_keys",
            "Type text, paste text and press keys on the session's terminal, and return the screen that is drawn then. "
            "Only for the owner: keys can answer an ask.",
            names=SESSION_NAME,
            destructive=True,
            forbid_unknown=True,
        ),
        python="Session.press",
    )
    async def press_keys(self, caller: Caller, arguments: PressKeys) -> ScreenState:
        """Type, paste and press keys in the terminal; returns the screen. Refused to processes Rookery has started."""
        if not (arguments.text or arguments.paste or arguments.keys):
            raise RookeryError("invalid-input", "there is nothing to press", "send text, paste or keys")
        return await self._sessions.press(
            arguments.session,
            text=arguments.text,
            paste=arguments.paste,
            keys=arguments.keys,
            size=choose_size(arguments.columns, arguments.rows),
        )

    @operation(
        access="workspace",
        changes=False,
        cancellable=True,
        time_limit=TIME_LIMIT,
        rest=RestRoute(
            "GET",
            f"{SESSION_PATH}/screenshot",
            short_path="/api/sessions/screenshot",
            media_types=("image/png", "image/svg+xml", "application/json"),
        ),
        python="Session.screenshot",
        absent={"mcp": "`take_screenshot` returns the same picture, and saves it in the workspace"},
    )
    async def screenshot(self, caller: Caller, arguments: TakeScreenshot) -> ScreenshotData | Binary:
        """A picture of the screen; `?format=` png or svg, `?columns=`, `?rows=`, `?scale=`; `?json=true` for JSON."""
        shot = await take_screenshot(
            self._sessions,
            arguments.session,
            caller.scope,
            format=choose_format(arguments.format, None),
            size=choose_size(arguments.columns, arguments.rows),
            scale=arguments.scale,
            progress=caller.progress,
        )
        self._viewed(caller, arguments.session, None)
        if arguments.json:
            return shot.make_data()
        headers = {"X-Rookery-Source": shot.capture.source, "X-Rookery-Session": shot.capture.ref.id}
        if shot.capture.note is not None:
            # A header may contain only ASCII characters.
            headers["X-Rookery-Note"] = "".join(char if " " <= char <= "~" else "?" for char in shot.capture.note)
        return Binary(shot.picture.data, shot.picture.media_type, headers)

    @operation(
        access="workspace",
        mcp=McpTool(
            "session",
            "take_screenshot",
            "Take screenshot of OpenCode window: the session's terminal as a picture in its real colours, saved if "
            "you wish. Without a terminal, source is rendering: the conversation drawn by Rookery.",
            names=SESSION_NAME | {"save_path": "savePath"},
            present=_present_picture,
            result=Screenshot,
        ),
        absent={
            "rest": "`GET /api/sessions/{session}/screenshot` returns the picture; its client, which need not be an "
            "agent, saves it with its own rights",
            "python": "`Session.screenshot` returns the picture, and saves it with the rights of its program",
        },
    )
    async def save_screenshot(self, caller: Caller, arguments: SaveScreenshot) -> SavedPicture:
        """A picture of the screen, saved in the session's workspace if a path is given."""
        session_ref = await self._sessions.resolve(arguments.session, caller.scope)
        if arguments.save_path is None:
            return SavedPicture(await self._take_picture(caller, session_ref, arguments))
        async with self._open_sandbox(caller, session_ref, arguments.save_path) as (root, path):
            # Checked before a terminal is started.
            self._require_savable(caller, root, path)
            shot = await self._take_picture(caller, session_ref, arguments)
            return SavedPicture(shot, await save_file_in_thread(root, path, shot.picture.data, is_rookery_picture))

    def _require_savable(self, caller: Caller, root: SandboxRoot, path: str) -> None:
        try:
            require_savable(root, path)
        except RookeryError as error:
            if error.code == "path-outside-root" and caller.scope is None:
                error.remedy = _SAVE_REMEDY
            raise

    async def _take_picture(self, caller: Caller, session: SessionRef, arguments: SaveScreenshot) -> SessionPicture:
        return await take_screenshot(
            self._sessions,
            session.id,
            caller.scope,
            format=choose_format(arguments.format, arguments.save_path),
            size=choose_size(arguments.columns, arguments.rows),
            scale=arguments.scale,
            progress=caller.progress,
        )

    @asynccontextmanager
    async def _open_sandbox(
        self, caller: Caller, session: SessionRef, path: str
    ) -> AsyncGenerator[tuple[SandboxRoot, str]]:
        """Yield the sandbox for a path, and the path in it: that of the workspace, or another one for the owner."""
        root = await self._save_folders.workspace(session.workspace_sessions.workspace.path)
        outside = None
        if caller.scope is None and path.startswith("/") and not _is_beneath(path, root):
            outside = await self._save_folders.find_outside_workspaces(path)
        if outside is None:
            yield root, path
            return
        with outside[0]:
            yield outside

    def _viewed(self, caller: Caller, session: str | None, result: Any) -> Any:
        """Record that the user has viewed a session, and return the result."""
        if caller.is_user and session is not None:
            self._record_view(session)
        return result


def _is_beneath(path: str, root: SandboxRoot) -> bool:
    """Return whether a path is in the workspace by its names alone.

    This only decides on the error message; the sandbox checks the path when the file is written.
    """
    return PurePosixPath(path).is_relative_to(root.path)
