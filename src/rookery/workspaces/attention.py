"""Who needs the user, and what for."""

from collections.abc import Iterator

from rookery.workspaces.agent import Agent
from rookery.workspaces.record import Workspace
from rookery.workspaces.status import Status

_SHOWN = 3


def attention_of(
    workspace: Workspace, status: Status | None = None, agent: Agent | None = None
) -> list[dict[str, str]]:
    """What a workspace needs its user for, each with a `reason` and a `text`. What is not given is not looked at."""
    return [{"reason": reason, "text": text} for reason, text in _needs(workspace, status, agent)]


def attention_of_agent(agent: Agent) -> list[dict[str, str]]:
    """The part of it that is its agent's."""
    return [{"reason": reason, "text": text} for reason, text in _needs_of(agent)]


def _needs(workspace: Workspace, status: Status | None, agent: Agent | None) -> Iterator[tuple[str, str]]:
    if workspace.state == "missing":
        yield "missing", workspace.error or "its folder is missing"
    if workspace.state == "failed":
        reason = "needs-approval" if workspace.code == "needs-approval" else "failed"
        yield reason, workspace.error or "it could not be prepared"
    if status is not None and status.conflicts:
        more = len(status.conflicts) - _SHOWN
        others = f" and {more} more" if more > 0 else ""
        yield "conflicts", f"it conflicts with {status.base}: {', '.join(status.conflicts[:_SHOWN])}{others}"
    if agent is not None:
        yield from _needs_of(agent)


def _needs_of(agent: Agent) -> Iterator[tuple[str, str]]:
    if agent.error is not None:
        # The rest are the last lines of its log.
        yield "agent-failed", agent.error.partition("\n")[0]
    for need in agent.attention:
        yield need.reason, need.text
