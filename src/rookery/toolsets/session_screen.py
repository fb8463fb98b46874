"""`get_tui_state`: what stands on the screen of a session."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from rookery.sessions.screen_records import ScreenShown
from rookery.sessions.service import Sessions
from rookery.sessions.shots import size_of
from rookery.toolsets.session_calls import progress_of
from rookery.toolsets.toolset import Tool
from rookery.wire.provider import Call


class GetTuiState(msgspec.Struct):
    sessionId: Annotated[str | None, Meta(description="Id of the session; default: the one active last")] = None
    columns: Annotated[float | None, Meta(description="How wide the terminal is to be, in characters")] = None
    rows: Annotated[float | None, Meta(description="How high the terminal is to be, in lines")] = None
    colours: Annotated[bool, Meta(description="If true, answer the rows with their colours too, as `runs`")] = False


class ScreenCalls:
    """`scope` is the only workspace that is seen, None for the owner."""

    def __init__(self, sessions: Sessions, scope: Path | None) -> None:
        self._sessions, self._scope = sessions, scope

    def tools(self) -> list[Tool]:
        return [
            Tool(
                "get_tui_state",
                "Get current TUI state: what stands on the session's terminal as text, its cursor and title, and where "
                "prompt, dialog, toast, sidebar and status line are, if they can be told. Where there is no terminal, "
                "source is rendering: the conversation as Rookery draws it.",
                self.get,
                takes=GetTuiState,
                gives=ScreenShown,
                read_only=True,
            )
        ]

    async def get(self, call: Call, given: GetTuiState) -> ScreenShown:
        size = size_of(given.columns, given.rows)
        return await self._sessions.screen(
            given.sessionId, self._scope, size=size, colours=given.colours, progress=progress_of(call)
        )
