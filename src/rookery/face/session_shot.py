"""Pictures of a session's screen, over the connection that it was found by."""

import asyncio
import os
from pathlib import Path
from typing import Literal

import msgspec

from rookery.face.session_waits import SessionWaits
from rookery.sessions.shot_records import ScreenshotData
from rookery.system.errors import RookeryError
from rookery.system.files import write_atomic


class SessionPictures(SessionWaits):
    async def screenshot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        format: Literal["png", "svg"] | None = None,
        columns: int | None = None,
        rows: int | None = None,
        scale: int = 1,
    ) -> ScreenshotData:
        """A picture of what its terminal shows, as `data`, and written to `path`, whose ending tells the format.

        `source` is `rendering` where there is no terminal: then it is the conversation, drawn by Rookery.
        """
        ending = os.fspath(path).lower().endswith(".svg") if path is not None else False
        found = await self._ask(
            "GET",
            "/screenshot",
            ScreenshotData,
            format=format or ("svg" if ending else "png"),
            columns=str(columns) if columns is not None else None,
            rows=str(rows) if rows is not None else None,
            scale=str(scale),
            json="true",
        )
        if path is None:
            return found
        try:
            await asyncio.to_thread(write_atomic, Path(path), found.data)
        except OSError as error:
            message = f"{path} cannot be written: {error.strerror}"
            raise RookeryError("file-unwritable", message, "choose another place") from None
        return msgspec.structs.replace(found, saved_to=os.fspath(path))
