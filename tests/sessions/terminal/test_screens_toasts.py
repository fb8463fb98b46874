"""Toasts of OpenCode's own interface are read from the session's terminal, once each."""

import asyncio
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rookery.agents.opencode.events import ToastShown
from rookery.sessions.index import SessionRef, WorkspaceSessions
from rookery.sessions.terminal.cells import Screen
from rookery.sessions.terminal.screens import ScreenToasts
from rookery.sessions.toasts import ToastLog
from tests.support.agents.host import LIMIT
from tests.support.agents.sessions import start_session_driver
from tests.support.agents.watcher import make_script
from tests.support.clock import SetClock
from tests.support.daemon.sessions import start_system_with_sessions
from tests.support.daemon.toasts import every_interface
from tests.support.opencode.screens import recorded
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from rookery.sessions.terminal.terminal import Terminal

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

# Keys that have the interface copy the last answer, and the toast that it raises then.
COPY, COPIED = ("ctrl+x", "y"), "Message copied to clipboard!"


@requirement("session.toasts.screen")
async def test_a_toast_of_the_interface_is_reported_and_waited_for_on_every_interface() -> None:
    async with start_system_with_sessions("fix") as (system, (path,)), every_interface(system, path) as toasts:
        session, other = await toasts.session(), await toasts.session()
        await toasts.send(session, "hello")
        # Without a terminal there is nothing to read, and nothing is claimed.
        assert await toasts.of(session, 0) == [[]] * 4
        await system.rest("GET", f"/api/sessions/{session}/screen")
        waiting = [asyncio.ensure_future(wait) for wait in toasts.waits(session, "(?i)copied to clip", LIMIT)]
        await toasts.press(session, *COPY)
        for told in await asyncio.gather(*waiting):
            assert told["found"] and told["note"] is None
            toast = told["toast"]
            assert (toast["message"], toast["title"], toast["variant"]) == (COPIED, None, "unknown")
            assert (toast["source"], toast["sessionId"], toast["attributed"]) == ("screen", session, True)
        # It stands there for seconds and is one toast; the other session has none.
        for shown in await toasts.of(session, 0):
            assert [(one["message"], one["source"]) for one in shown] == [(COPIED, "screen")]
        assert await toasts.of(other, 0) == [[]] * 4
        for told in await asyncio.gather(*toasts.waits(other, "(?i)copied", 0.2)):
            assert not told["found"]
        # While it stands there it is on show. One that was looked at too late is raised again.
        on_show: list[dict[str, Any]] = []
        for _ in range(5):
            on_show = await system.rest("GET", f"/api/sessions/{session}/toasts")
            if on_show:
                break
            asked = {"for": "toast", "pattern": "copied", "since": time.time() * 1000, "timeout": LIMIT * 1000}
            await toasts.press(session, *COPY)
            assert (await system.rest("POST", f"/api/sessions/{session}/wait", asked))["found"]
        assert [(one["message"], one["source"], one["expiresAt"]) for one in on_show] == [(COPIED, "screen", 0)]


@requirement("session.toasts.screen")
async def test_a_toast_that_came_as_an_event_is_not_reported_again_from_a_screen() -> None:
    async with start_session_driver(make_script(hello=[{"say": "Good morning."}])) as stage:
        sessions = stage.sessions
        workspace = await stage.host.create("one")
        first, second = await stage.session(workspace), await stage.session(workspace)
        for session in (first, second):
            await sessions.send(session, "hello", timeout=LIMIT)
            await sessions.screen(session)
        # OpenCode shows it on every terminal of the workspace: with a title, wrapped over lines, and in wide letters.
        long = "Die Prüfung läuft weiter, \N{CJK UNIFIED IDEOGRAPH-6F22}\N{CJK UNIFIED IDEOGRAPH-5B57} too, " * 4
        await sessions.show_toast(first, long, title="A title", variant="warning", duration=4000)
        for session in (first, second):
            assert (await sessions.wait_for_screen(session, "A title", LIMIT)).found
        # Those that the interfaces raise themselves take its place there.
        for session in (first, second):
            await sessions.press(session, keys=COPY)
            assert (await sessions.wait_for_toast(session, "copied", LIMIT)).found
        # In another size it is drawn anew, and is still the same toast.
        resized = await sessions.screen(second, size=(160, 50))
        assert resized.regions.toast is not None and COPIED in resized.regions.toast.text
        seen = [(one.message, one.source) for one in await sessions.toasts(first, since=0)]
        assert seen == [(long, "event"), (COPIED, "screen")]
        assert [(one.message, one.source) for one in await sessions.toasts(second, since=0)] == [(COPIED, "screen")]


class Stage:
    """A terminal that shows what a test says, and the workspace's log of toasts."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.log = ToastLog("app-1", "one")
        self.title, self.text, self._screen = "OC | a session", "", recorded("home")
        self.session = SimpleNamespace(title="a session")
        room = SimpleNamespace(toasts=self.log, session=self._session, _mark=self._marked)
        room.add_screen_toast = partial(WorkspaceSessions.add_screen_toast, cast("WorkspaceSessions", room))
        self.reader = ScreenToasts(
            SessionRef(cast("WorkspaceSessions", room), "ses_1"), cast("Terminal", self), self.clock
        )

    def _session(self, id_: str) -> SimpleNamespace:
        return self.session

    def _marked(self, what: str, session: str | None) -> None:
        """Nobody listens here."""

    def capture(self) -> Screen:
        return self._screen

    def shows(self, name: str, seconds: float) -> None:
        """A frame is drawn, and so much time goes by."""
        drawn = recorded(name)
        # The title of a toast is bold, which is not recorded.
        bold = [replace(cell, style=replace(cell.style, bold=True)) for cell in drawn.cells[3]]
        self._screen = replace(drawn, cells=[*drawn.cells[:3], bold, *drawn.cells[4:]])
        self.text = self._screen.text
        self.reader._check_frame()
        self.clock.now += seconds
        self.reader._settle()

    @property
    def toasts(self) -> list[tuple[str, float]]:
        return [(one.message, round(one.duration)) for one in self.log.since(-1)]


def test_what_stays_on_the_screen_is_one_toast_and_what_comes_back_later_another() -> None:
    stage = Stage()
    stage.shows("toast", 0.4)
    # It may still come as an event.
    assert stage.toasts == []
    stage.shows("toast", 2.0)
    # All is drawn anew, as after a change of the size.
    stage.shows("home", 0.3)
    stage.shows("toast", 1.0)
    assert stage.toasts == [("All 41 pass.", 0)]
    stage.shows("home", 0.3)
    stage.shows("home", 0.3)
    assert stage.toasts == [("All 41 pass.", 3700)]
    stage.shows("toast", 1.0)
    assert stage.toasts == [("All 41 pass.", 3700), ("All 41 pass.", 0)]


def test_a_toast_that_is_soon_replaced_counts_and_one_of_an_event_does_not() -> None:
    stage = Stage()
    stage.shows("toast", 0.1)
    stage.log.add(ToastShown("All 41 pass.", "Tests", "info", 5000), stage.clock.wall() * 1000)
    stage.shows("toast", 1.0)
    stage.shows("home", 1.0)
    assert stage.toasts == [("All 41 pass.", 5000)]
    stage.clock.now += 60
    stage.shows("toast", 0.1)
    stage.shows("home", 0.5)
    assert stage.toasts[1:] == [("All 41 pass.", 100)]


def test_a_terminal_that_was_led_to_another_session_is_not_read() -> None:
    stage = Stage()
    stage.title = "OC | another session"
    stage.shows("toast", 1.0)
    stage.shows("toast", 1.0)
    assert stage.toasts == []
