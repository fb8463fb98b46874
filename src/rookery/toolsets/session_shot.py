"""`take_screenshot`: a picture of a session's screen, answered, and saved where that is allowed."""

from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from rookery.files.sandbox import Root
from rookery.files.saving import require_place, save_aside
from rookery.sessions.drawing import is_ours
from rookery.sessions.finding import Found
from rookery.sessions.service import Sessions
from rookery.sessions.shot_records import Screenshot
from rookery.sessions.shots import Shot, format_of, shoot, size_of
from rookery.toolsets.session_calls import progress_of
from rookery.toolsets.toolset import Told, Tool
from rookery.wire.provider import Call

_SAVE = (
    "Where to save it: in the session's workspace, relative to its root, or an absolute path in there or in the state "
    "folder. Only a picture that was saved so before is replaced"
)


class TakeScreenshot(msgspec.Struct):
    sessionId: Annotated[str | None, Meta(description="Id of the session; default: the one active last")] = None
    savePath: Annotated[str | None, Meta(description=_SAVE)] = None
    format: Annotated[Literal["png", "svg"] | None, Meta(description="Default: what savePath ends in, else png")] = None
    columns: Annotated[float | None, Meta(description="How wide the terminal is to be, in characters")] = None
    rows: Annotated[float | None, Meta(description="How high the terminal is to be, in lines")] = None
    scale: Annotated[int, Meta(description="How much larger the picture is to be: 1, 2 or 3")] = 1


class SavingPlaces(Protocol):
    """Where pictures may be saved."""

    async def workspace(self, directory: Path) -> Root:
        """That of the workspace there, which is somebody else's to close."""
        ...

    async def state(self) -> Root:
        """That of the state folder, made for the caller, who closes it."""
        ...


class ShotCalls:
    """`scope` is the only workspace that is seen and saved in, None for the owner."""

    def __init__(self, sessions: Sessions, scope: Path | None, places: SavingPlaces) -> None:
        self._sessions, self._scope, self._places = sessions, scope, places

    def tools(self) -> list[Tool]:
        return [
            Tool(
                "take_screenshot",
                "Take screenshot of OpenCode window: the session's terminal as a picture in its real colours, saved if "
                "you wish. Where there is no terminal, source is rendering: the conversation drawn by Rookery.",
                self.take,
                takes=TakeScreenshot,
                gives=Screenshot,
            )
        ]

    async def take(self, call: Call, given: TakeScreenshot) -> Told:
        found = await self._sessions.which(given.sessionId, self._scope)
        path = given.savePath
        if path is None:
            return _told(await self._shot(call, found, given))
        async with self._place(found, path) as root:
            # Before a terminal is started for nothing.
            require_place(root, path)
            shot = await self._shot(call, found, given)
            return _told(shot, await save_aside(root, path, shot.picture.data, is_ours))

    async def _shot(self, call: Call, found: Found, given: TakeScreenshot) -> Shot:
        return await shoot(
            self._sessions,
            found.id,
            self._scope,
            format=format_of(given.format, given.savePath),
            size=size_of(given.columns, given.rows),
            scale=given.scale,
            progress=progress_of(call),
        )

    @asynccontextmanager
    async def _place(self, found: Found, path: str) -> AsyncGenerator[Root]:
        """The root that a path is meant in: that of the workspace, or of the state folder for the owner."""
        root = await self._places.workspace(found.room.workspace.path)
        if self._scope is None and path.startswith("/") and not _is_beneath(path, root):
            with await self._places.state() as state:
                yield state if _is_beneath(path, state) else root
        else:
            yield root


def _told(shot: Shot, saved: Path | None = None) -> Told:
    return Told(shot.told(saved_to=saved), blocks=[_block(shot)])


def _is_beneath(path: str, root: Root) -> bool:
    """By its names alone, which tell whose error it is; what is written is seen to where it is written."""
    return PurePosixPath(path).is_relative_to(root.path)


def _block(shot: Shot) -> Mapping[str, Any]:
    picture = shot.picture
    if picture.format == "png":
        return {"type": "image", "data": b64encode(picture.data).decode(), "mimeType": picture.media_type}
    resource = {
        "uri": f"screenshot://{shot.seen.found.id}",
        "mimeType": picture.media_type,
        "text": picture.data.decode(),
    }
    return {"type": "resource", "resource": resource}
