"""The agent of a workspace, as commands about workspaces tell of it."""

from typing import TYPE_CHECKING, Any

from rookery.cli.failure import NOT_FOUND, Failure
from rookery.cli.ws_names import Record

if TYPE_CHECKING:
    from rookery.cli.ws_watch import Narration, Watch


def wait_for_prompt(watch: "Watch", one: Record, narration: "Narration") -> None:
    """Tell how its agent starts until that has the first prompt, and fail if it cannot have it."""
    # Only here: a list of workspaces is to come fast.
    import shlex

    from rookery.cli.agent_telling import progress

    for kind, told in watch.about(one["project"], one["name"]):
        if kind == "agent.state" and (text := progress(told)):
            narration.tell(text, text)
        elif kind == "agent.prompted":
            if told["error"] is not None:
                raise _not_sent(one, told["error"])
            narration.remark(f"its agent works on the prompt; see it: rookery agent attach {shlex.quote(one['name'])}")
            return
        elif kind in ("workspace.deleting", "workspace.deleted"):
            raise Failure("workspace-not-found", f"{one['name']} was deleted meanwhile")


def _not_sent(one: Record, error: dict[str, Any]) -> Failure:
    """The workspace is made, and keeps the prompt."""
    import shlex

    again = f"rookery agent restart {shlex.quote(one['name'])}"
    said = f"{one['path']} is made, but its agent did not get the prompt: {error['message']}"
    remedy = error.get("remedy") or "see `rookery agent logs`"
    return Failure(error["code"], said, f"{remedy}; the prompt is kept and sent by: {again}", NOT_FOUND)


def doing(told: dict[str, Any]) -> str:
    """What an agent does, by the counts of its sessions."""
    counts = told["counts"]
    if told["type"] == "mixed":
        return f"{counts['busy']} busy, {counts['idle']} idle"
    return "" if told["type"] == "none" else str(told["type"])


def agent_of(one: Record) -> str:
    """In a word or two: what it does if it runs, else how it is; nothing if there is none."""
    state = one["agent"]["state"]
    if state == "running":
        return (doing(one["status"]["agent"]) if one.get("status") else "") or "running"
    return "" if state == "stopped" else str(state)
