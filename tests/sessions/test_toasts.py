"""Toasts are recorded with their time, and with their session if it is known."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rookery.agents.opencode.events import ToastShown
from rookery.sessions.toasts import MAX_TOASTS, ToastLog
from tests.support.daemon.sessions import start_system_with_sessions
from tests.support.daemon.toasts import Toasts, every_interface
from tests.support.requirements import requirement

# Shows a toast of which OpenCode does not say whose it is.
PLUGIN = """
export default async ({ client }) => ({
  event: async ({ event }) => {
    if (event.type !== "session.status" || event.properties.status.type !== "idle") return
    const toast = { title: "Plugin", message: "saved by all", variant: "info", duration: 600000 }
    await client.tui.showToast({ body: toast })
  },
})
"""


def test_a_toast_is_on_show_for_as_long_as_it_lasts() -> None:
    log = ToastLog("app-1", "one")
    toast = log.add(ToastShown("hello", "A title", "warning", 900), 1000)
    assert toast.as_dict() == {
        "message": "hello",
        "title": "A title",
        "variant": "warning",
        "duration": 900,
        "shownAt": 1000,
        "expiresAt": 1900,
        "workspace": "one",
        "project": "app-1",
        "sessionId": None,
        "attributed": False,
        "source": "event",
    }
    assert log.current(1899) == [toast]
    assert log.current(1900) == []
    assert log.since(999) == [toast]
    assert log.since(1000) == []
    assert log.since(1000, 1100) == [toast]
    assert log.last("ses_1") is toast


def test_a_toast_that_was_asked_for_is_of_the_session_that_it_was_asked_for() -> None:
    log = ToastLog("app-1", "one")
    ours = ToastShown("done", None, "success", 5000)
    log.expect(ours, "ses_1", 0)
    log.expect(ours, "ses_2", 0)
    assert log.add(ToastShown("done", None, "info", 5000), 0).session_id is None
    assert [log.add(ours, 0).session_id for _ in range(3)] == ["ses_1", "ses_2", None]
    log.expect(ours, "ses_1", 1000)
    assert log.add(ours, 61_000).session_id is None


def test_a_toast_of_one_session_is_not_told_of_another() -> None:
    log = ToastLog("app-1", "one")
    log.expect(ToastShown("for the first"), "ses_1", 0)
    first, nobody = log.add(ToastShown("for the first"), 10), log.add(ToastShown("for nobody"), 20)
    assert (first.attributed, nobody.attributed) == (True, False)
    for id_, expected in (("ses_1", [first, nobody]), (None, [first, nobody]), ("ses_2", [nobody])):
        assert log.current(30, id_) == log.since(0, None, id_) == log.added_since(0, id_) == expected
    assert log.last("ses_2") is nobody


def test_a_toast_of_a_screen_is_on_show_until_it_is_gone_and_is_no_event_drawn() -> None:
    log = ToastLog("app-1", "one")
    log.expect(ToastShown("on its way"), "ses_2", 0)
    log.add(ToastShown("All 41 tests of the suite pass.", "Tests", "info", 5000), 1000)
    for drawn in ("All 41 tests of the suite pass.", "All 41 tests of the suite", "on its way"):
        assert log.is_known(drawn, 2000)
    assert not log.is_known("All 41", 2000) and not log.is_known("All 41 tests of the suite pass.", 12_000)
    toast = log.add_from_screen(None, "Copied", "ses_1", 2000)
    assert (toast.source, toast.session_id, toast.attributed) == ("screen", "ses_1", True)
    assert log.current(1_000_000, "ses_1") == [toast] and log.current(1_000_000, "ses_2") == []
    log.end(toast, 4500)
    (gone,) = log.since(1999, session="ses_1")
    assert (gone.duration, gone.expires_at) == (2500, 4500) and log.current(10_000) == []


@asynccontextmanager
async def two_sessions() -> AsyncGenerator[tuple[Toasts, str, str]]:
    """Two sessions of one workspace, and all interfaces."""
    plugin = Path.home() / ".config" / "opencode" / "plugin" / "saves.js"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(PLUGIN)
    async with start_system_with_sessions("fix") as (system, (path,)), every_interface(system, path) as toasts:
        yield toasts, await toasts.session(), await toasts.session()


@pytest.mark.anyio
@pytest.mark.timeout(300)
@requirement("session.toasts.attributed")
async def test_a_toast_of_another_session_open_or_closed_never_counts() -> None:
    async with two_sessions() as (toasts, first, second):
        # Whoever waits before anything is shown, and whatever comes first.
        began = time.time()
        waiting = [asyncio.ensure_future(wait) for wait in toasts.waits(second, "saved", 120)]
        await toasts.show(first, "saved by the first")
        # Also by a part of its id.
        for given in (first, first[:-2]):
            for told in await asyncio.gather(*toasts.waits(given, "saved", 60)):
                assert told["found"] and told["toast"]["sessionId"] == first and told["toast"]["attributed"]
                assert told["note"] is None
            assert all([one["message"] for one in shown] == ["saved by the first"] for shown in await toasts.of(given))
        for closed in (False, True):
            if closed:
                await toasts.close(first)
            waits = [*toasts.waits(second, "saved", 0.2), *toasts.waits(second, "saved", 0.2, since=began)]
            for told in await asyncio.gather(*waits):
                assert (told["found"], told["toast"], told["seen"]) == (False, None, "no toast")
            for since in (None, 0):
                assert await toasts.of(second, since) == [[]] * 4
            assert all([one["message"] for one in all_] == ["saved by the first"] for all_ in await toasts.of(None))
        assert not any(wait.done() for wait in waiting)
        # Nobody says whose this one is: it counts, and the answer says so.
        await toasts.send(second, "hello")
        for told in [*await asyncio.gather(*waiting), *await asyncio.gather(*toasts.waits(second, "saved", 60))]:
            assert told["found"] and told["toast"]["message"] == "saved by all"
            assert (told["toast"]["sessionId"], told["toast"]["attributed"]) == (None, False)
            assert "does not report which session" in told["note"]
        for shown in (*await toasts.of(second), *await toasts.of(second, 0)):
            assert [(one["message"], one["attributed"]) for one in shown] == [("saved by all", False)]
        assert "unknown" in await toasts.printed(second)


def test_only_so_many_are_kept_and_long_ones_are_cut() -> None:
    log = ToastLog("app-1", "one")
    for number in range(MAX_TOASTS + 5):
        log.add(ToastShown(str(number)), number)
    assert len(log.since(-1)) == MAX_TOASTS
    assert [one.message for one in log.added_since(log.count - 2)] == [str(MAX_TOASTS + 3), str(MAX_TOASTS + 4)]
    assert log.added_since(log.count) == []
    assert len(log.added_since(0)) == MAX_TOASTS
    assert len(log.add(ToastShown("x" * 50_000), 0).message) == 10_000
