"""Pictures of sessions: what stands on the screen of one, drawn."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from rookery.sessions.drawing import Format, Picture, check_size, drawn
from rookery.sessions.interface import COLUMNS, ROWS, Size
from rookery.sessions.records import Progress
from rookery.sessions.seen import Seen
from rookery.sessions.service import Sessions
from rookery.sessions.shot_records import Screenshot, ScreenshotData
from rookery.system.errors import RookeryError


@dataclass(frozen=True)
class Shot:
    seen: Seen
    picture: Picture

    def told(self, *, saved_to: Path | None = None) -> Screenshot:
        seen, picture = self.seen, self.picture
        return Screenshot(
            session_id=seen.found.id,
            source=seen.source,
            format=picture.format,
            media_type=picture.media_type,
            width=picture.width,
            height=picture.height,
            columns=seen.screen.columns,
            rows=seen.screen.rows,
            size=len(picture.data),
            saved_to=str(saved_to) if saved_to is not None else None,
            note=seen.note,
        )

    def whole(self) -> ScreenshotData:
        return ScreenshotData(**msgspec.structs.asdict(self.told()), data=self.picture.data)


async def shoot(
    sessions: Sessions,
    id_: str | None = None,
    scope: Path | None = None,
    *,
    format: Format = "png",
    size: Size | None = None,
    scale: int = 1,
    terminal: bool = True,
    progress: Progress | None = None,
) -> Shot:
    """A picture of a session's screen; without an id of the session that was active last."""
    if size is not None:
        check_size(*size, scale)
    seen = await sessions.see(id_, scope, size=size, terminal=terminal, progress=progress)
    return Shot(seen, await drawn(seen.screen, format, scale))


def size_of(columns: float | None, rows: float | None) -> Size | None:
    """What is not given is as it always is; with neither, the screen stays as it is."""
    if columns is None and rows is None:
        return None
    return int(columns if columns is not None else COLUMNS), int(rows if rows is not None else ROWS)


def format_of(format: str | None, path: str | None) -> Format:
    """The format that is wanted, or else the one that a file's ending says, or else PNG."""
    ending = path.rpartition(".")[2].lower() if path else ""
    if format is None:
        return "svg" if ending == "svg" else "png"
    if format not in ("png", "svg"):
        raise RookeryError("invalid-input", f"there is no format {format[:40]!r}", "write png or svg")
    found: Format = format
    if ending in ("png", "svg") and ending != found:
        raise RookeryError("invalid-input", f"a file that ends in .{ending} is not {found}", "change one of them")
    if found == "svg" and path and ending != "svg":
        raise RookeryError("invalid-input", "a file with an SVG ends in .svg", "change savePath")
    return found
