"""How a command fails: one line, a remedy, and an exit code that scripts can rely on."""

import sys
from collections.abc import Sequence
from typing import Any

FAILED = 1
USAGE = 2
NOT_FOUND = 3
NOT_AUTHORISED = 4
UNREACHABLE = 5
TIMED_OUT = 124

_BY_CODE = {
    "invalid-input": USAGE,
    "needs-approval": NOT_FOUND,
    "needs-answer": NOT_FOUND,
    "needs-auth": NOT_FOUND,
    "needs-client-registration": NOT_FOUND,
    "workspace-not-clean": NOT_FOUND,
    "unauthorized": NOT_AUTHORISED,
    "approval-refused": NOT_AUTHORISED,
    "forbidden": NOT_AUTHORISED,
    "tool-denied": NOT_AUTHORISED,
    "daemon-unreachable": UNREACHABLE,
    "timeout": TIMED_OUT,
}


class Failure(Exception):
    """`details` is what a message of several lines is about, one by one."""

    def __init__(
        self, code: str, message: str, remedy: str = "", exit_code: int | None = None, details: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.remedy, self.details = code, message, remedy, tuple(details)
        fallback = NOT_FOUND if code.endswith("-not-found") else FAILED
        self.exit_code = exit_code if exit_code is not None else _BY_CODE.get(code, fallback)


def failure_from(error: dict[str, Any]) -> Failure:
    """An error as the daemon tells it."""
    return Failure(error["code"], error["message"], error.get("remedy", ""), details=error.get("details", ()))


def report(failure: Failure) -> int:
    """Tell on stderr: an object if the command was asked for JSON, else a line."""
    if "--json" in sys.argv:
        import json

        told: dict[str, Any] = {"code": failure.code, "message": failure.message, "remedy": failure.remedy}
        told |= {"details": failure.details} if failure.details else {}
        sys.stderr.write(json.dumps({"error": told}) + "\n")
    else:
        from rookery.cli.visible import visible

        # What a server said may be in it.
        remedy = f"({visible(failure.remedy)})" if failure.remedy else ""
        # Lines are kept only where they are ours.
        first, *more = failure.message.split("\n") if failure.details else [failure.message]
        lines = [visible(first), *(f"  {visible(line)}" for line in more)]
        sys.stderr.write(f"rookery: {chr(10).join(lines)}{chr(10) if more else ' '}{remedy}".rstrip() + "\n")
    return failure.exit_code
