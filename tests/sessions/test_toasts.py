"""Toasts are written down, with when they are on show and whose they are where that is known."""

from rookery.agents.message_events import ToastShown
from rookery.sessions.toasts import KEPT, ToastLog


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
    }
    assert log.current(1899) == [toast]
    assert log.current(1900) == []
    assert log.since(999) == [toast]
    assert log.since(1000) == []
    assert log.since(1000, 1100) == [toast]
    assert log.last is toast


def test_a_toast_that_was_asked_for_is_of_the_session_that_it_was_asked_for() -> None:
    log = ToastLog("app-1", "one")
    ours = ToastShown("done", None, "success", 5000)
    log.expect(ours, "ses_1")
    log.expect(ours, "ses_2")
    assert log.add(ToastShown("done", None, "info", 5000), 0).session_id is None
    assert [log.add(ours, 0).session_id for _ in range(3)] == ["ses_1", "ses_2", None]


def test_only_so_many_are_kept_and_long_ones_are_cut() -> None:
    log = ToastLog("app-1", "one")
    for number in range(KEPT + 5):
        log.add(ToastShown(str(number)), number)
    assert len(log.since(-1)) == KEPT
    assert [one.message for one in log.added(log.count - 2)] == [str(KEPT + 3), str(KEPT + 4)]
    assert log.added(log.count) == []
    assert len(log.added(0)) == KEPT
    assert len(log.add(ToastShown("x" * 50_000), 0).message) == 10_000
