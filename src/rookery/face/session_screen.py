"""What stands on a session's screen, and keys for its terminal, over the connection that it was found by."""

from rookery.face.line import as_given
from rookery.face.session_shot import SessionPictures
from rookery.sessions.records import Waited
from rookery.sessions.screen_records import ScreenShown


class SessionScreens(SessionPictures):
    async def screen(
        self, *, columns: int | None = None, rows: int | None = None, colours: bool = False
    ) -> ScreenShown:
        """What its terminal shows. `source` is `rendering` where there is none: then it is the conversation."""
        return await self._ask(
            "GET",
            "/screen",
            ScreenShown,
            columns=str(columns) if columns is not None else None,
            rows=str(rows) if rows is not None else None,
            colours="true" if colours else None,
        )

    async def press(self, *keys: str) -> ScreenShown:
        """Press keys by their names, such as `enter` or `ctrl+p`; answers the screen that is drawn then."""
        return await self._ask("POST", "/keys", ScreenShown, {"keys": keys})

    async def type(self, text: str) -> ScreenShown:
        """Type text, which is not sent before `press("enter")`."""
        return await self._ask("POST", "/keys", ScreenShown, as_given(text=text))

    async def paste(self, text: str) -> ScreenShown:
        """Paste text, which may have several lines."""
        return await self._ask("POST", "/keys", ScreenShown, as_given(paste=text))

    async def wait_for_screen(self, pattern: str, timeout: float = 30.0, *, check: bool = True) -> Waited:
        """Until what stands on its terminal fits the regular expression."""
        return await self._wait("screen", timeout, check, pattern=pattern)
