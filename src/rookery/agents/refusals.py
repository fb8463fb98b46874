"""What OpenCode's refusals mean to us: a code, its own words, and what to do about it."""

import msgspec

from rookery.system.errors import RookeryError

LOGS = "`rookery agent logs` shows what it wrote; `rookery agent restart` starts it anew"
_WORDS = 300


class _Inner(msgspec.Struct, frozen=True):
    message: str = ""


class _Refusal(msgspec.Struct, frozen=True, rename={"tag": "_tag"}):
    """OpenCode has two shapes of it: `{name, data: {message}}` and `{_tag, message}`."""

    name: str = ""
    tag: str = ""
    message: str = ""
    data: _Inner = _Inner()


def refused(status: int, body: bytes, session: str | None) -> RookeryError:
    """The error for an answer with this status; `session` is the one that was asked about."""
    said = _words(body) or f"HTTP {status}"
    if status == 401:
        return RookeryError("agent-unavailable", "the agent does not accept our password", LOGS)
    if status == 404 and session is not None:
        return no_session(session, said)
    if 400 <= status < 500:
        return RookeryError("invalid-input", f"OpenCode refused it: {said}")
    return RookeryError("agent-unavailable", f"OpenCode failed: {said}", LOGS)


def no_session(session: str, said: str = "") -> RookeryError:
    message = said if session in said else f"there is no session {session!r} here"
    return RookeryError("session-not-found", message, "list the sessions of this workspace, and name one of them")


def _words(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body, type=_Refusal)
    except ValueError:
        found = _Refusal()
    said = found.data.message or found.message or found.name or found.tag
    return (said or body.decode("utf-8", "replace").strip())[:_WORDS]
