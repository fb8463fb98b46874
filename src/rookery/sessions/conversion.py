"""OpenCode's messages, tools and asks as they are shown, and what its words get wrong set right."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from rookery.agents.records import Ask, Fault, MessageInfo, Part, Permission
from rookery.sessions.records import AskShown, MessageShown, ToolRun

ABORTED = "MessageAbortedError"
REPLIES = ("once", "always", "reject")
# A longer text is cut, so that no message outgrows all others together.
LONGEST_TEXT = 1_000_000
_INVALID = "invalid"
_SHORT = 200
_STATUSES = ("pending", "running", "completed", "error")
_ABORTED_WORDS = "Tool execution aborted"
# What OpenCode writes behind the output of a command that it has ended.
_WHY_ENDED = re.compile(r"<(\w+_metadata)>\n(.*)\n</\1>\s*\Z", re.DOTALL)


class _Metadata(msgspec.Struct, frozen=True):
    """Of a command: `exit` is null where it was ended, and `output` grows while it runs."""

    exit: Any = msgspec.UNSET
    output: Any = None


class _Refused(msgspec.Struct, frozen=True):
    """What the call that could not be made was, and why not."""

    tool: str = ""
    error: str = ""


_NO_METADATA = _Metadata()
_read_metadata = msgspec.json.Decoder(_Metadata)


def tool_run(part: Part, session: str, origin: str | None = None) -> ToolRun:
    """What a part says of the tool that it ran."""
    state = part.state
    assert state is not None
    metadata = _metadata(state.metadata)
    run = ToolRun(
        # One that was asked for by name is known by its call before there is a part.
        id=part.call if origin is not None and part.call else part.id,
        session_id=session,
        tool=part.tool or "",
        input=state.input,
        output=cut(state.output) if state.output is not None else _so_far(metadata),
        status=state.status if state.status in _STATUSES else "pending",
        start=state.time.start,
        end=state.time.end,
        error=state.error,
        origin=origin,
        title=state.title or "",
        exit_code=metadata.exit if isinstance(metadata.exit, int) else None,
        message_id=part.message,
    )
    if run.tool == _INVALID:
        return _refused(run)
    if run.status == "completed" and metadata.exit is None:
        return _ended(run)
    if run.status == "error" and run.error == _ABORTED_WORDS:
        return msgspec.structs.replace(run, status="aborted")
    return run


def cut_short(run: ToolRun) -> ToolRun:
    """A tool that seems to run, though its turn is over."""
    if run.status not in ("pending", "running"):
        return run
    return msgspec.structs.replace(run, status="aborted", error="its turn was cut off before it ended")


def message_shown(info: MessageInfo, session: str, texts: Iterable[str], runs: Iterable[ToolRun]) -> MessageShown:
    return MessageShown(
        id=info.id,
        role=info.role,
        content="\n".join(filter(None, texts)),
        time=info.time.created,
        parts=tuple(runs),
        error=words(info.error) if info.error is not None else None,
        session_id=session,
        completed=info.time.completed,
    )


def in_short(message: MessageShown) -> str:
    """One line of it: the tool that it runs, or the end of what it says."""
    if message.parts and message.parts[-1].status in ("pending", "running"):
        return f"runs {message.parts[-1].tool} {message.parts[-1].title}".rstrip()
    said = " ".join(message.content.split())
    short = said if len(said) <= _SHORT else f"…{said[-_SHORT:]}"
    return f"{message.role}: {message.error or short}"


def words(fault: Fault) -> str:
    """The first line of an error: OpenCode puts its own stack behind some of them."""
    return fault.message.split("\n    at ", 1)[0].strip() or fault.name


def failure(fault: Fault | None) -> str | None:
    """Why a turn failed; one that somebody has ended did not."""
    return words(fault) if fault is not None and fault.name != ABORTED else None


def ask_shown(ask: Ask, root: str, project: str, workspace: str) -> AskShown:
    if isinstance(ask, Permission):
        kind, options = "permission", (REPLIES,)
        detail: dict[str, Any] = {
            "permission": ask.permission,
            "patterns": [*ask.patterns],
            "always": [*ask.always],
            "metadata": ask.metadata,
        }
    else:
        kind, options = "question", tuple(tuple(one.label for one in query.options) for query in ask.questions)
        detail = {"questions": msgspec.to_builtins(ask.questions)}
    return AskShown(
        id=ask.id,
        session_id=root,
        kind=kind,
        text=ask.text,
        detail=detail,
        options=options,
        asked_by=ask.session,
        project=project,
        workspace=workspace,
    )


def cut(text: str) -> str:
    more = len(text) - LONGEST_TEXT
    return text if more <= 0 else f"{text[:LONGEST_TEXT]}\n[{more} more characters are not kept]"


def _metadata(raw: msgspec.Raw) -> _Metadata:
    try:
        return _read_metadata.decode(raw)
    except ValueError:
        return _NO_METADATA


def _so_far(metadata: _Metadata) -> str | None:
    return cut(metadata.output) if isinstance(metadata.output, str) and metadata.output else None


def _refused(run: ToolRun) -> ToolRun:
    """OpenCode puts a call that it cannot make down as a success of a tool of that name."""
    try:
        given = msgspec.convert(run.input, _Refused)
    except ValueError:
        given = _Refused()
    return msgspec.structs.replace(
        run,
        tool=given.tool or run.tool,
        input=None,
        output=None,
        status="error" if run.status == "completed" else run.status,
        error=given.error or run.output,
    )


def _ended(run: ToolRun) -> ToolRun:
    """A command that has no exit status was ended, by a person or by its time limit."""
    why = _WHY_ENDED.search(run.output or "")
    told = why[2].strip() if why else "it was ended before it was through"
    return msgspec.structs.replace(run, status="aborted" if "abort" in told.lower() else "error", error=told)
