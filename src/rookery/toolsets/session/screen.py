"""`take_screenshot` and `get_tui_state`: the screen of a session as a picture and as text."""

from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from rookery.files.sandbox import SandboxRoot
from rookery.files.save import require_savable, save_file_in_thread
from rookery.sessions.drawing.picture import is_rookery_picture
from rookery.sessions.drawing.screenshot import SessionPicture, choose_format, choose_size, take_screenshot
from rookery.sessions.index import SessionRef
from rookery.sessions.records import Screenshot, ScreenState
from rookery.sessions.service import Sessions
from rookery.system.errors import RookeryError
from rookery.toolsets.session.calls import progress_reporter
from rookery.toolsets.toolset import NotedResult, Tool
from rookery.wire.protocol.provider import Call

_SAVE = (
    "Where to save it: in the session's workspace, relative to its root, or an absolute path in there, in the state "
    "folder or in a folder of the setting sessions.save_roots. Only a picture that this tool saved earlier is replaced"
)

_REMEDY = "name a file in the session's workspace, or have the user add its folder to the setting sessions.save_roots"


class TakeScreenshot(msgspec.Struct):
    sessionId: Annotated[str | None, Meta(description="Id of the session; default: the one active last")] = None
    savePath: Annotated[str | None, Meta(description=_SAVE)] = None
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


class ScreenshotCalls:
    """Takes screenshots. `scope` is the only workspace to access and to save in, None for the owner."""

    def __init__(self, sessions: Sessions, scope: Path | None, save_folders: SaveFolders) -> None:
        self._sessions, self._scope, self._save_folders = sessions, scope, save_folders

    def tools(self) -> list[Tool]:
        return [
            Tool(
                "take_screenshot",
                "Take screenshot of OpenCode window: the session's terminal as a picture in its real colours, saved if "
                "you wish. Without a terminal, source is rendering: the conversation drawn by Rookery.",
                self.take,
                input_type=TakeScreenshot,
                output_type=Screenshot,
            )
        ]

    async def take(self, call: Call, arguments: TakeScreenshot) -> NotedResult:
        """Take a screenshot, and save it if a path is given."""
        session_ref = await self._sessions.resolve(arguments.sessionId, self._scope)
        path = arguments.savePath
        if path is None:
            return _describe_screenshot(await self._take_picture(call, session_ref, arguments))
        async with self._open_sandbox(session_ref, path) as (root, path):
            # Checked before a terminal is started.
            self._require_savable(root, path)
            shot = await self._take_picture(call, session_ref, arguments)
            return _describe_screenshot(
                shot, await save_file_in_thread(root, path, shot.picture.data, is_rookery_picture)
            )

    def _require_savable(self, root: SandboxRoot, path: str) -> None:
        try:
            require_savable(root, path)
        except RookeryError as error:
            if error.code == "path-outside-root" and self._scope is None:
                error.remedy = _REMEDY
            raise

    async def _take_picture(self, call: Call, session: SessionRef, arguments: TakeScreenshot) -> SessionPicture:
        return await take_screenshot(
            self._sessions,
            session.id,
            self._scope,
            format=choose_format(arguments.format, arguments.savePath),
            size=choose_size(arguments.columns, arguments.rows),
            scale=arguments.scale,
            progress=progress_reporter(call),
        )

    @asynccontextmanager
    async def _open_sandbox(self, session: SessionRef, path: str) -> AsyncGenerator[tuple[SandboxRoot, str]]:
        """Yield the sandbox for a path, and the path in it: that of the workspace, or another one for the owner."""
        root = await self._save_folders.workspace(session.workspace_sessions.workspace.path)
        outside = None
        if self._scope is None and path.startswith("/") and not _is_beneath(path, root):
            outside = await self._save_folders.find_outside_workspaces(path)
        if outside is None:
            yield root, path
            return
        with outside[0]:
            yield outside


def _describe_screenshot(shot: SessionPicture, saved: Path | None = None) -> NotedResult:
    return NotedResult(shot.make_record(saved_to=saved), blocks=[_block(shot)])


def _is_beneath(path: str, root: SandboxRoot) -> bool:
    """Return whether a path is in the workspace by its names alone.

    This only decides on the error message; the sandbox checks the path when the file is written.
    """
    return PurePosixPath(path).is_relative_to(root.path)


def _block(shot: SessionPicture) -> Mapping[str, Any]:
    picture = shot.picture
    if picture.format == "png":
        return {"type": "image", "data": b64encode(picture.data).decode(), "mimeType": picture.media_type}
    resource = {
        "uri": f"screenshot://{shot.capture.ref.id}",
        "mimeType": picture.media_type,
        "text": picture.data.decode(),
    }
    return {"type": "resource", "resource": resource}


class GetTuiState(msgspec.Struct):
    sessionId: Annotated[str | None, Meta(description="Id of the session; default: the one active last")] = None
    columns: Annotated[float | None, Meta(description="Width of the terminal, in characters")] = None
    rows: Annotated[float | None, Meta(description="Height of the terminal, in lines")] = None
    colours: Annotated[bool, Meta(description="If true, also return the rows with their colours, as `runs`")] = False


class TuiStateCalls:
    """Returns the state of the terminal. `scope` is the only accessible workspace, None for the owner."""

    def __init__(self, sessions: Sessions, scope: Path | None) -> None:
        self._sessions, self._scope = sessions, scope

    def tools(self) -> list[Tool]:
        return [
            Tool(
                "get_tui_state",
                "Get TUI (Terminal UI) current state: the text, cursor and title of the session's terminal, and where "
                "prompt, dialog, toast, sidebar and status line are, if they can be detected. Without a terminal, "
                "source is rendering: the conversation as Rookery draws it.",
                self.get,
                input_type=GetTuiState,
                output_type=ScreenState,
                read_only=True,
            )
        ]

    async def get(self, call: Call, arguments: GetTuiState) -> ScreenState:
        size = choose_size(arguments.columns, arguments.rows)
        return await self._sessions.screen(
            arguments.sessionId, self._scope, size=size, colours=arguments.colours, progress=progress_reporter(call)
        )
