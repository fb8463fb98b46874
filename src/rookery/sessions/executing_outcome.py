"""What came of a tool that was asked for by name, from what OpenCode wrote down. Pure."""

from collections.abc import Iterable, Sequence

import msgspec

from rookery.agents.records import Message
from rookery.sessions.executing_plays import Play
from rookery.sessions.hidden import ORIGIN
from rookery.sessions.records import ToolRun
from rookery.sessions.shown import tool_run
from rookery.system.errors import RookeryError

# Their whole effect is on the conversation that they are called in.
BOUND = frozenset({"todowrite", "todoread", "task", "question", "plan_enter", "plan_exit", "StructuredOutput"})
# What OpenCode calls instead of a tool that does not exist or gets what is no JSON, with success.
_INVALID = "invalid"


def require_unbound(tool: str) -> None:
    if tool in BOUND or tool == _INVALID:
        raise RookeryError(
            "invalid-input",
            f"the tool {tool!r} only makes sense inside a conversation",
            "send a message that asks the agent to use it",
        )


def runnable(offered: Iterable[str]) -> list[str]:
    """The tools that can be asked for, of those that an agent offers to its model."""
    return sorted(name for name in offered if name not in BOUND and name != _INVALID)


def not_offered(tool: str, offered: Iterable[str], known: Iterable[str]) -> RookeryError:
    """`known` are those that the agent has, offered or not."""
    there = runnable(offered)
    if tool in known:
        message = f"the tool {tool!r} is there, and the rules of this session or its agent do not allow it"
        return RookeryError("tool-denied", message, "change the permission rules, or use another agent", there)
    message = f"there is no tool {tool!r} in this session; there are: {', '.join(there) or 'none'}"
    return RookeryError("invalid-input", message, "name one of them", there)


def begun(play: Play, session: str) -> ToolRun:
    """As long as nothing more is known of it than that it was asked for."""
    tool, given = play.tool or "", dict(play.arguments)
    return ToolRun(id=play.id, session_id=session, tool=tool, input=given, status="running", origin=ORIGIN)


def outcome(messages: Sequence[Message], play: Play, session: str) -> ToolRun | None:
    """What OpenCode wrote down of the call, as that of the session; None if it made none of it."""
    for message in messages:
        for part in message.parts:
            if part.type == "tool" and part.call == play.id and part.state is not None:
                run = msgspec.structs.replace(tool_run(part, session, ORIGIN), id=play.id, tool=play.tool or "")
                # The arguments of a call that it refuses are not with what it writes down.
                return run if run.input is not None else msgspec.structs.replace(run, input=dict(play.arguments))
    return None


def size_of(run: ToolRun) -> int:
    """How much the next call in the same child is burdened with."""
    return len(run.output or run.error or "") + len(msgspec.json.encode(run.input))
