"""What every face answers of a picture of a session's screen."""

from rookery.sessions.drawing import Format
from rookery.sessions.records import Answer
from rookery.sessions.screen_records import Source


class Screenshot(Answer, frozen=True, kw_only=True):
    """A picture of a session's screen, `width` and `height` in pixels.

    `source` tells whether it is of OpenCode's own terminal or of a rendering of the conversation, and `note` why.
    """

    session_id: str
    source: Source
    format: Format
    media_type: str
    width: int
    height: int
    columns: int
    rows: int
    size: int
    saved_to: str | None = None
    note: str | None = None


class ScreenshotData(Screenshot, frozen=True, kw_only=True):
    """The same with the picture itself; in JSON it is in base64."""

    data: bytes
