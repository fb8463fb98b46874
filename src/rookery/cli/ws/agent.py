"""The agent of a workspace: describes its state in a few words, and waits for its first prompt."""

from typing import TYPE_CHECKING, Any

from rookery.cli.ws.common import JsonObject
from rookery.daemon_client.failure import NOT_FOUND, Failure

if TYPE_CHECKING:
    from rookery.cli.progress import EventStream, ProgressLine

_ACTIVITIES = {"waiting": "waits for you", "failed": "turn failed", "finished": "finished", "queued": "queued"}


def wait_for_prompt(stream: "EventStream", workspace: JsonObject, progress: "ProgressLine") -> None:
    """Show the start of a workspace's agent until it has the first prompt. Raise `Failure` if it cannot get it."""
    # Imported here, since `rookery ws list` imports this module and has to be fast.
    import shlex

    from rookery.cli.agent.progress import describe_progress

    for kind, data in stream.workspace_and_agent_events(workspace["project"], workspace["name"]):
        if kind == "agent.state" and (text := describe_progress(data)):
            progress.show(text, text)
        elif kind == "agent.prompted":
            if data["error"] is not None:
                raise (
                    _unanswered_failure(workspace, data["error"])
                    if data["session"]
                    else _unsent_failure(workspace, data["error"])
                )
            progress.write_line(
                f"the agent works on the prompt; open it: rookery agent attach {shlex.quote(workspace['name'])}"
            )
            return
        elif kind in ("workspace.deleting", "workspace.deleted"):
            raise Failure("workspace-not-found", f"{workspace['name']} was deleted in the meantime")


def _unsent_failure(workspace: JsonObject, error: dict[str, Any]) -> Failure:
    """Return the failure for a prompt that was not sent: the workspace exists, and keeps the prompt."""
    import shlex

    command = f"rookery agent restart {shlex.quote(workspace['name'])}"
    message = f"{workspace['path']} was created, but its agent did not get the prompt: {error['message']}"
    remedy = error.get("remedy") or "see `rookery agent logs`"
    return Failure(error["code"], message, f"{remedy}; the prompt is kept, and sent by: {command}", NOT_FOUND)


def _unanswered_failure(workspace: JsonObject, error: dict[str, Any]) -> Failure:
    """Return the failure for an agent that has the prompt, but cannot reach a model."""
    import shlex

    message = f"{workspace['path']} was created and its agent has the prompt, but {error['message']}"
    next_step = (
        f"then rookery agent restart {shlex.quote(workspace['name'])}, and send it again with rookery session send"
    )
    return Failure(error["code"], message, f"{error.get('remedy', '')}; {next_step}", NOT_FOUND)


def describe_activity(status: dict[str, Any]) -> str:
    """Describe what an agent does, from the counts of its sessions."""
    counts = status["counts"]
    if status["type"] == "mixed":
        return f"{counts['busy']} busy, {counts['idle']} idle"
    return "" if status["type"] == "none" else str(status["type"])


def describe_agent(workspace: JsonObject) -> str:
    """Describe in a word or two what the agent's sessions do or how they ended, else the state of its process."""
    agent = workspace["agent"]
    state = agent["state"]
    activity = agent.get("activity", "new")
    busy = describe_activity(workspace["status"]["agent"]) if workspace.get("status") and state == "running" else ""
    if activity == "working":
        return busy or "working"
    if activity in _ACTIVITIES:
        return _ACTIVITIES[activity]
    if activity == "idle":
        return "idle" if state in ("running", "stopped") else str(state)
    if state not in ("running", "stopped"):
        return str(state)
    return "new" if workspace.get("open") else ""
