"""Take a screenshot of a session, in the format and size that the caller requests."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from rookery.sessions.drawing.picture import Picture, PictureFormat, check_picture_size, draw_in_thread
from rookery.sessions.records import Progress, Screenshot, ScreenshotData
from rookery.sessions.service import Sessions
from rookery.sessions.terminal.screens import ScreenCapture
from rookery.sessions.terminal.terminal import DEFAULT_COLUMNS, DEFAULT_ROWS, TerminalSize
from rookery.system.errors import RookeryError


@dataclass(frozen=True)
class SessionPicture:
    """The picture of a session, and the screen that it was drawn from."""

    capture: ScreenCapture
    picture: Picture

    def make_record(self, *, saved_to: Path | None = None) -> Screenshot:
        """Return the screenshot as a record, without the picture itself."""
        capture = self.capture
        picture = self.picture
        return Screenshot(
            session_id=capture.ref.id,
            source=capture.source,
            format=picture.format,
            media_type=picture.media_type,
            width=picture.width,
            height=picture.height,
            columns=capture.screen.columns,
            rows=capture.screen.rows,
            size=len(picture.data),
            saved_to=str(saved_to) if saved_to is not None else None,
            note=capture.note,
        )

    def make_data(self) -> ScreenshotData:
        """Return the screenshot as a record with the picture."""
        return ScreenshotData(**msgspec.structs.asdict(self.make_record()), data=self.picture.data)


async def take_screenshot(
    sessions: Sessions,
    id_: str | None = None,
    scope: Path | None = None,
    *,
    format: PictureFormat = "png",
    size: TerminalSize | None = None,
    scale: int = 1,
    terminal: bool = True,
    progress: Progress | None = None,
) -> SessionPicture:
    """Draw the screen of a session; without an id that of the session that was used most recently."""
    if size is not None:
        check_picture_size(*size, scale)
    capture = await sessions.capture(id_, scope, size=size, terminal=terminal, progress=progress)
    return SessionPicture(capture, await draw_in_thread(capture.screen, format, scale))


def choose_size(columns: float | None, rows: float | None) -> TerminalSize | None:
    """Return a terminal size with defaults for a missing number; None, for the current size, if both are missing."""
    if columns is None and rows is None:
        return None
    return int(columns if columns is not None else DEFAULT_COLUMNS), int(rows if rows is not None else DEFAULT_ROWS)


def choose_format(format: str | None, path: str | None) -> PictureFormat:
    """Return the requested format, else that of the file's suffix, else PNG.

    Raise an error if format and suffix conflict.
    """
    suffix = path.rpartition(".")[2].lower() if path else ""
    if format is None:
        return "svg" if suffix == "svg" else "png"
    if format not in ("png", "svg"):
        raise RookeryError("invalid-input", f"there is no format {format[:40]!r}", "use png or svg")
    chosen: PictureFormat = format
    if suffix in ("png", "svg") and suffix != chosen:
        raise RookeryError("invalid-input", f"a file that ends in .{suffix} is not {chosen}", "change one of them")
    if chosen == "svg" and path and suffix != "svg":
        raise RookeryError("invalid-input", "the name of an SVG file must end in .svg", "change savePath")
    return chosen
