"""Failures of commands: one line, a remedy, and an exit code that scripts can rely on."""

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

FAILED = 1
USAGE = 2
NOT_FOUND = 3
NOT_AUTHORISED = 4
UNREACHABLE = 5
TIMED_OUT = 124

# The error codes that end a command with each exit code. A code that ends in `-not-found` ends it with NOT_FOUND.
# The guide on troubleshooting has the same table, and a test checks that no code is missing here.
_CODES = {
    FAILED: (
        *("address-refused", "agent-unavailable", "already-running", "bad-request", "body-time", "body-too-large"),
        *("daemon-failed", "deletion-failed", "file-unreadable", "file-unwritable", "git-failed", "head-time"),
        *("headers-too-large", "internal-error", "invalid-lock", "invalid-settings", "limit-reached"),
        "method-not-allowed",
        *("move-failed", "not-json", "path-denied", "path-outside-root", "plugin-failed", "port-taken"),
        *("repository-busy", "restore-failed", "result-withheld", "sandbox-unavailable", "server-busy"),
        *("server-unavailable", "setup-failed", "sign-in-failed"),
        *("spawn-failed", "state-unusable", "store-busy", "store-closed", "store-failed", "store-too-new"),
        *("task-failed", "too-many-agents", "too-many-bytes", "too-many-connections", "too-many-events"),
        *("too-many-questions", "too-many-sessions", "too-many-streams", "too-many-workspaces", "tool-failed"),
        *("turn-failed", "unsafe-file", "upstream-failed", "wrong-host"),
    ),
    USAGE: ("ambiguous-id", "branch-exists", "invalid-input", "server-exists", "usage", "workspace-exists"),
    NOT_FOUND: (
        "definition-withheld",
        *("needs-answer", "needs-approval", "needs-auth", "needs-client-registration", "no-provider"),
        *("workspace-not-clean",),
    ),
    NOT_AUTHORISED: ("approval-refused", "forbidden", "foreign-origin", "tool-denied", "unauthorized"),
    UNREACHABLE: ("daemon-unreachable",),
    TIMED_OUT: ("timeout",),
}
EXIT_CODES = {code: exit_code for exit_code, codes in _CODES.items() for code in codes}

# Remedies for errors that have none of their own. An error's own remedy is more exact.
_REMEDIES = {
    "agent-unavailable": "see: rookery agent logs",
    "file-unreadable": "check the permissions of the file, and the disk",
    "file-unwritable": "check the permissions of the folder, or choose another one",
    "forbidden": "do it yourself, in a terminal that Rookery did not open",
    "git-failed": "fix the problem that git reports, and try again",
    "invalid-input": "see --help",
    "needs-approval": "see: rookery guard list",
    "plugin-failed": "see: rookery plugin list",
    "project-not-found": "see: rookery project list",
    "sign-in-failed": "see: rookery mcp debug NAME",
    "spawn-failed": "see: rookery doctor",
    "store-closed": "try again when the daemon is up",
    "timeout": "try again with more time, or see: rookery logs",
    "tool-denied": "change the rule that forbids it, if you want it to run",
    "tool-failed": "fix the problem in the message, and try again",
    "turn-failed": "see: rookery session messages",
    "upstream-failed": "see: rookery mcp debug NAME",
    "workspace-exists": "choose another name",
    "workspace-not-found": "see: rookery ws list",
}
_DEFAULT_REMEDY = "see: rookery logs"


def find_exit_code(code: str) -> int:
    """Return the exit code of a command that fails with this error code."""
    return EXIT_CODES.get(code, NOT_FOUND if code.endswith("-not-found") else FAILED)


class Failure(Exception):
    """An error that ends the command with an exit code.

    `details` are the items that a message of several lines lists. Without `remedy`, the remedy of the code is used.
    """

    def __init__(
        self, code: str, message: str, remedy: str = "", exit_code: int | None = None, details: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = tuple(details)
        self.remedy = remedy or _REMEDIES.get(code, _DEFAULT_REMEDY)
        self.exit_code = exit_code if exit_code is not None else find_exit_code(code)


@contextmanager
def translate_errors() -> Generator[None]:
    """Raise the errors of shared code as failures of the command."""
    from rookery.system.errors import RookeryError

    try:
        yield
    except RookeryError as error:
        raise make_failure(error.as_dict()) from None


def make_failure(error: dict[str, Any]) -> Failure:
    """Return the failure for an error object of the daemon."""
    return Failure(error["code"], error["message"], error.get("remedy", ""), details=error.get("details", ()))


def make_os_failure(error: OSError) -> Failure | None:
    """Return the failure for a full disk, a read-only file system or a missing permission; None for other errors."""
    from rookery.system.causes import explain_os_error

    explanation = explain_os_error(error)
    return Failure(explanation.code, explanation.message, explanation.remedy) if explanation is not None else None


def report_failure(failure: Failure) -> int:
    """Write the failure to stderr, as a JSON object with `--json`, else as text. Return its exit code."""
    if "--json" in sys.argv:
        import json

        error: dict[str, Any] = {"code": failure.code, "message": failure.message, "remedy": failure.remedy}
        error |= {"details": failure.details} if failure.details else {}
        sys.stderr.write(json.dumps({"error": error}) + "\n")
    else:
        from rookery.system.text import escape_invisible

        # Remedies and messages may contain text of a server.
        remedy = f"({escape_invisible(failure.remedy)})"
        # Only messages with details have line breaks of our own; others are made visible.
        first, *more = failure.message.split("\n") if failure.details else [failure.message]
        lines = [escape_invisible(first), *(f"  {escape_invisible(line)}" for line in more)]
        sys.stderr.write(f"rookery: {chr(10).join(lines)}{chr(10) if more else ' '}{remedy}".rstrip() + "\n")
    return failure.exit_code
