"""The exit code of a command is derived from the error code, in one table, as documented in the guide."""

import json
import re
from pathlib import Path

import pytest

from rookery.daemon_client import failure
from rookery.daemon_client.failure import EXIT_CODES, Failure, find_exit_code
from tests.support.cli.workspaces import app, made, run
from tests.support.daemon.process import Daemon, rookery
from tests.support.requirements import requirement
from tests.test_docs import PUT_TOGETHER, codes, text_of

pytestmark = requirement("house.cli.exit")
NAMES = ("FAILED", "USAGE", "NOT_FOUND", "NOT_AUTHORISED", "UNREACHABLE", "TIMED_OUT")
MEANT = {getattr(failure, name) for name in NAMES}


def documented() -> dict[int, set[str]]:
    """For each exit code the error codes that the guide names."""
    rows = re.findall(r"^\| (\d+) \|[^|]*\|([^|]*)\|$", text_of("docs/guide/troubleshooting.md"), re.MULTILINE)
    return {int(number): set(re.findall(r"`([a-z-]+)`", cell)) for number, cell in rows}


def test_every_error_code_of_the_source_has_an_exit_code_and_the_guide_tells_it() -> None:
    raised = [*codes(), *((code, "api or wire") for code in PUT_TOGETHER)]
    assert len(raised) > 20
    known = [(code, where) for code, where in raised if any(re.fullmatch(code, one) for one in EXIT_CODES)]
    missing = [each for each in raised if each not in known and not each[0].endswith("found")]
    assert not missing, "say in EXIT_CODES of daemon_client/failure.py, and in the guide, how a command ends with these"

    told = documented()
    assert set(told) == MEANT | {0}
    for exit_code in MEANT - {failure.FAILED}:
        named = {code for code, each in EXIT_CODES.items() if each == exit_code}
        assert told[exit_code] - {"-not-found"} == named, exit_code
    assert find_exit_code("anything-not-found") == failure.NOT_FOUND and "-not-found" in told[failure.NOT_FOUND]
    assert not told[failure.FAILED] and find_exit_code("something-else") == failure.FAILED


def test_a_failure_ends_with_the_exit_code_of_its_error_code() -> None:
    for code, exit_code in EXIT_CODES.items():
        assert Failure(code, "it failed").exit_code == exit_code
        # Many errors of the daemon have no remedy of their own.
        assert Failure(code, "it failed").remedy
    assert Failure("timeout", "it failed", exit_code=1).exit_code == 1


def test_commands_end_as_the_guide_says(daemon: Daemon, state: Path) -> None:
    project = app(state / "src" / "app")
    made("fix", cwd=project)
    for words, code, error in (
        (("ws", "create", "fix"), 2, "workspace-exists"),
        (("ws", "create", "other", "--branch", "fix"), 2, "invalid-input"),
        (("ws", "create", "no way"), 2, "invalid-input"),
        (("ws", "show", "nothing"), 3, "workspace-not-found"),
        (("ws", "meta", "get", "nothing", "-w", "fix"), 3, "key-not-found"),
        (("ws", "rm", "--merged", "--project", "nothing"), 3, "project-not-found"),
        (("ws", "list", "--project", "nothing"), 3, "project-not-found"),
        (("ws", "restore", "nothing"), 3, "workspace-not-found"),
        (("session", "show", "ses_nothing"), 3, "session-not-found"),
        (("project", "remove", "nothing"), 3, "project-not-found"),
        (("mcp", "get", "nothing"), 3, "server-not-found"),
        (("guard", "approve", "nothing"), 3, "approval-not-found"),
        (("plugin", "state", "nothing"), 3, "plugin-not-found"),
        (("plugin", "action", "nothing", "run"), 3, "plugin-not-found"),
        (("boulder", "log", "ses_nothing"), 3, "session-not-found"),
        (("ws", "dismiss", "fix", "--session", "ses_nothing"), 3, "session-not-found"),
        (("ws", "no-such-verb"), 2, "usage"),
    ):
        done = rookery(*words, "--json", cwd=project)
        told = json.loads(done.stderr.splitlines()[-1])["error"]
        assert (told["code"], done.returncode, done.stdout) == (error, code, ""), (words, done.stderr)
        assert told["message"] and told["remedy"], words
    (made("dirty", cwd=project) / "new.txt").write_text("work\n")
    assert run("rm", "dirty", cwd=project).returncode == 3


@pytest.mark.parametrize("words", [("ws", "list"), ("session", "list"), ("status",)])
def test_without_a_daemon_it_is_not_reachable(words: tuple[str, ...]) -> None:
    assert rookery(*words, "--no-start").returncode == 5
