"""`make test-fast` leaves out the tests that need OpenCode, and no others."""

from tests.support.selection import TESTS, needs_opencode


def test_a_module_that_starts_opencode_itself_or_through_a_helper_needs_it() -> None:
    assert needs_opencode(TESTS / "agents" / "opencode" / "test_process.py")
    assert needs_opencode(TESTS / "agents" / "test_watcher.py")
    assert needs_opencode(TESTS / "e2e" / "test_boulder.py")


def test_a_module_that_only_starts_a_daemon_does_not_need_opencode() -> None:
    assert not needs_opencode(TESTS / "cli" / "ws" / "test_rm.py")
    assert not needs_opencode(TESTS / "wire" / "protocol" / "test_messages.py")
    assert not needs_opencode(TESTS / "test_selection.py")
