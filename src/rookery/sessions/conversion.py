"""Convert OpenCode's messages, tool parts and asks to records of Rookery. No I/O.

Corrects the cases in which OpenCode reports a failed or stopped tool as a success. Also identifies the hidden child
sessions in which Rookery runs tools by name: OpenCode has them, but no list of sessions shows them.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from rookery.agents.opencode.records import Ask, MessageInfo, Part, Permission, Session, TurnError
from rookery.sessions.records import SessionAsk, SessionMessage, ToolRun

ABORTED_ERROR = "MessageAbortedError"
PERMISSION_REPLIES = ("once", "always", "reject")
# A longer text is truncated, so that one message cannot take most of the cache.
MAX_TEXT_CHARS = 1_000_000
_INVALID_TOOL = "invalid"
_SUMMARY_CHARS = 200
_STATUSES = ("pending", "running", "completed", "error")
_ABORTED_WORDS = "Tool execution aborted"
# OpenCode appends this to the output of a command that it has stopped.
_STOP_REASON = re.compile(r"<(\w+_metadata)>\n(.*)\n</\1>\s*\Z", re.DOTALL)

# Identifies the hidden sessions after a restart of the daemon.
HIDDEN_TITLE = "rookery: tools by name"
EXECUTE_TOOL_ORIGIN = "execute_tool"


class _Metadata(msgspec.Struct, frozen=True):
    """Metadata of a command: `exit` is null if the command was stopped, and `output` grows while it runs."""

    exit: Any = msgspec.UNSET
    output: Any = None


class _InvalidCall(msgspec.Struct, frozen=True):
    """The input of OpenCode's tool `invalid`: the call that could not be made, and the reason."""

    tool: str = ""
    error: str = ""


_NO_METADATA = _Metadata()
_read_metadata = msgspec.json.Decoder(_Metadata)


def convert_tool_run(part: Part, session: str, origin: str | None = None) -> ToolRun:
    """Convert a tool part of a message to a record of the run."""
    state = part.state
    assert state is not None
    metadata = _decode_metadata(state.metadata)
    run = ToolRun(
        # A call by name is identified by its call id, which exists before its part.
        id=part.call if origin is not None and part.call else part.id,
        session_id=session,
        tool=part.tool or "",
        input=state.input,
        output=truncate_text(state.output) if state.output is not None else _partial_output(metadata),
        status=state.status if state.status in _STATUSES else "pending",
        start=state.time.start,
        end=state.time.end,
        error=state.error,
        origin=origin,
        title=state.title or "",
        exit_code=metadata.exit if isinstance(metadata.exit, int) else None,
        message_id=part.message,
    )
    if run.tool == _INVALID_TOOL:
        return _convert_invalid_call(run)
    if run.status == "completed" and metadata.exit is None:
        return _convert_stopped_command(run)
    if run.status == "error" and run.error == _ABORTED_WORDS:
        return msgspec.structs.replace(run, status="aborted")
    return run


def mark_aborted(run: ToolRun) -> ToolRun:
    """Return the run as aborted if it is still pending or running: its turn is over."""
    if run.status not in ("pending", "running"):
        return run
    return msgspec.structs.replace(run, status="aborted", error="its turn was cut off before the tool finished")


def convert_message(info: MessageInfo, session: str, parts: Iterable[str | ToolRun]) -> SessionMessage:
    """Return a message with its texts joined and the tools that it ran, in their order."""
    texts = list[str]()
    runs = list[ToolRun]()
    length = 0
    for part in parts:
        if isinstance(part, ToolRun):
            runs.append(msgspec.structs.replace(part, offset=length))
        elif part:
            length += len(part) + bool(texts)
            texts.append(part)
    return SessionMessage(
        id=info.id,
        role=info.role,
        content="\n".join(texts),
        time=info.time.created,
        parts=tuple(runs),
        error=describe_error(info.error) if info.error is not None else None,
        session_id=session,
        completed=info.time.completed,
    )


def iterate_content(message: SessionMessage) -> Iterator[str | ToolRun]:
    """Yield the text of a message in pieces, each tool after the text that precedes it."""
    position = 0
    for run in message.parts:
        end = max(position, run.offset or 0)
        if text := message.content[position:end].removeprefix("\n" if position else ""):
            yield text
        position = end
        yield run
    if text := message.content[position:].removeprefix("\n" if position else ""):
        yield text


def summarize_message(message: SessionMessage) -> str:
    """Summarize a message in one line: the tool that runs, the end of its text, or the last tool if it has no text."""
    text = " ".join(message.content.split())
    if message.parts:
        last_run = message.parts[-1]
        if last_run.status in ("pending", "running"):
            return f"runs {last_run.tool} {last_run.title}".rstrip()
        if not text and message.error is None:
            return f"ran {last_run.tool} {last_run.title}".rstrip()
    short = text if len(text) <= _SUMMARY_CHARS else f"…{text[-_SUMMARY_CHARS:]}"
    return f"{message.role}: {message.error or short}"


def describe_error(error: TurnError) -> str:
    """Return the first line of an error. OpenCode appends its own stack trace to some of them."""
    return error.message.split("\n    at ", 1)[0].strip() or error.name


def describe_failure(error: TurnError | None) -> str | None:
    """Return why a turn failed, or None if it did not fail or was aborted."""
    return describe_error(error) if error is not None and error.name != ABORTED_ERROR else None


def convert_ask(ask: Ask, root: str, project: str, workspace: str) -> SessionAsk:
    """Convert an ask of OpenCode.

    `root` is the session that waits, which may be the parent of the session that asks.
    """
    if isinstance(ask, Permission):
        kind = "permission"
        options = (PERMISSION_REPLIES,)
        detail: dict[str, Any] = {
            "permission": ask.permission,
            "patterns": [*ask.patterns],
            "always": [*ask.always],
            "metadata": ask.metadata,
        }
    else:
        kind = "question"
        options = tuple(tuple(option.label for option in question.options) for question in ask.questions)
        detail = {"questions": msgspec.to_builtins(ask.questions)}
    return SessionAsk(
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


def truncate_text(text: str) -> str:
    excess = len(text) - MAX_TEXT_CHARS
    return text if excess <= 0 else f"{text[:MAX_TEXT_CHARS]}\n[{excess} more characters are not kept]"


def _decode_metadata(raw: msgspec.Raw) -> _Metadata:
    try:
        return _read_metadata.decode(raw)
    except ValueError:
        return _NO_METADATA


def _partial_output(metadata: _Metadata) -> str | None:
    return truncate_text(metadata.output) if isinstance(metadata.output, str) and metadata.output else None


def _convert_invalid_call(run: ToolRun) -> ToolRun:
    """Convert a call that OpenCode could not make, which it records as a success of its tool `invalid`."""
    try:
        call = msgspec.convert(run.input, _InvalidCall)
    except ValueError:
        call = _InvalidCall()
    return msgspec.structs.replace(
        run,
        tool=call.tool or run.tool,
        input=None,
        output=None,
        status="error" if run.status == "completed" else run.status,
        error=call.error or run.output,
    )


def _convert_stopped_command(run: ToolRun) -> ToolRun:
    """Convert a command without an exit status: a person or a time limit stopped it."""
    match = _STOP_REASON.search(run.output or "")
    reason = match[2].strip() if match else "it was stopped before it finished"
    return msgspec.structs.replace(run, status="aborted" if "abort" in reason.lower() else "error", error=reason)


def is_hidden(session: Session) -> bool:
    """Return whether a session is a hidden child in which tools are run by name."""
    return session.parent is not None and session.title == HIDDEN_TITLE
