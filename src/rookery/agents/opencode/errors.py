"""Translate OpenCode's error responses to errors with a code, a message and a remedy."""

import os
import re

import msgspec

from rookery.agents.opencode.environment import find_database
from rookery.system.causes import find_cause, find_write_problem
from rookery.system.errors import RookeryError

LOGS_HINT = "`rookery agent logs` shows its output; `rookery agent restart` restarts it"
_MAX_MESSAGE = 300
_STACK_TRACE = re.compile(r"(?:\n|\\n)\s+at ")
_DISK_ERROR = re.compile(r"(?i)sql\s?error|sqlite|\bE(?:NOSPC|DQUOT|ROFS|ACCES|PERM)\b")


class _ErrorData(msgspec.Struct, frozen=True):
    message: str = ""


class _ErrorBody(msgspec.Struct, frozen=True, rename={"tag": "_tag"}):
    """The body of an error response. OpenCode has two forms: `{name, data: {message}}` and `{_tag, message}`."""

    name: str = ""
    tag: str = ""
    message: str = ""
    data: _ErrorData = _ErrorData()


def response_error(status: int, body: bytes, session: str | None) -> RookeryError:
    """Return the error for a response with this status; `session` is the session of the request."""
    message = _error_message(body) or f"HTTP {status}"
    if status == 401:
        return RookeryError("agent-unavailable", "the agent rejected Rookery's password", LOGS_HINT)
    if status == 404 and session is not None:
        return session_not_found(session, message)
    if 400 <= status < 500:
        return RookeryError("invalid-input", f"OpenCode rejected the request: {message}")
    if (obstacle := _find_data_obstacle()) is not None:
        return RookeryError("agent-unavailable", f"OpenCode failed: {obstacle.message}", obstacle.remedy)
    return RookeryError("agent-unavailable", f"OpenCode failed: {message}", LOGS_HINT)


def require_disk_space() -> None:
    """Raise RookeryError if the disk of OpenCode's data is full: it would accept a message and lose it silently."""
    obstacle = _find_data_obstacle()
    if obstacle is not None and obstacle.code == "disk-full":
        raise RookeryError("agent-unavailable", f"OpenCode cannot continue: {obstacle.message}", obstacle.remedy)


def _find_data_obstacle() -> RookeryError | None:
    return find_write_problem((find_database(os.environ).parent,))


def session_not_found(session: str, message: str = "") -> RookeryError:
    message = message if session in message else f"there is no session {session!r} here"
    return RookeryError("session-not-found", message, "list the sessions of this workspace, and name one of them")


def _error_message(body: bytes) -> str:
    try:
        parsed = msgspec.json.decode(body, type=_ErrorBody)
    except ValueError:
        parsed = _ErrorBody()
    message = parsed.data.message or parsed.message or parsed.name or parsed.tag
    return explain_message(message or body.decode("utf-8", "replace").strip())[:_MAX_MESSAGE]


def explain_message(message: str) -> str:
    """Return OpenCode's message without the stack trace, and with the disk or permission problem that caused it.

    An error of its database names neither the database nor the cause.
    """
    first = re.split(_STACK_TRACE, message, maxsplit=1)[0].strip()
    if first == message and not _DISK_ERROR.search(message):
        return message
    folder = find_database(os.environ).parent
    cause = find_cause(1, message, (folder,)) or (
        find_write_problem((folder,)) if _DISK_ERROR.search(message) else None
    )
    return f"{first}: {cause.message}" if cause is not None else first
