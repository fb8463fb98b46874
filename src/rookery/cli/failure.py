"""How a command fails: one line, a remedy, and an exit code that scripts can rely on."""

import sys

FAILED = 1
USAGE = 2
NOT_FOUND = 3
NOT_AUTHORISED = 4
UNREACHABLE = 5
TIMED_OUT = 124

_BY_CODE = {
    "invalid-input": USAGE,
    "needs-approval": NOT_FOUND,
    "unauthorized": NOT_AUTHORISED,
    "approval-refused": NOT_AUTHORISED,
    "tool-denied": NOT_AUTHORISED,
    "daemon-unreachable": UNREACHABLE,
    "timeout": TIMED_OUT,
}


class Failure(Exception):
    def __init__(self, code: str, message: str, remedy: str = "", exit_code: int | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.remedy = code, message, remedy
        fallback = NOT_FOUND if code.endswith("-not-found") else FAILED
        self.exit_code = exit_code if exit_code is not None else _BY_CODE.get(code, fallback)


def report(failure: Failure) -> int:
    """Tell on stderr: an object if the command was asked for JSON, else a line."""
    if "--json" in sys.argv:
        import json

        told = {"code": failure.code, "message": failure.message, "remedy": failure.remedy}
        sys.stderr.write(json.dumps({"error": told}) + "\n")
    else:
        from rookery.cli.visible import visible

        # What a server said may be in it.
        remedy = f" ({visible(failure.remedy)})" if failure.remedy else ""
        sys.stderr.write(f"rookery: {visible(failure.message)}{remedy}\n")
    return failure.exit_code
