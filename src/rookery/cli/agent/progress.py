"""Shows the progress of an agent's start or of an install, while a command waits for the daemon."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from rookery.cli.progress import EventStream, ProgressLine
from rookery.cli.ws.common import JsonObject, WorkspaceClient
from rookery.daemon_client.failure import Failure

# A start may download OpenCode first, 180 MB. The daemon ends requests that take longer.
START_SECONDS = 1900.0


@contextmanager
def show_agent_progress(
    client: WorkspaceClient, workspace: JsonObject | None = None, *, silent: bool = False
) -> Generator[None]:
    """Show progress while the block sends a request about one workspace's agent, or about the OpenCode of all."""
    if silent:
        yield
        return
    progress = ProgressLine()
    # An agent that is already starting may send no event for a long time.
    if workspace is not None and (text := describe_progress(workspace)):
        progress.show(text, text)
    with EventStream(start=client.starts_daemon) as stream:
        listener = threading.Thread(target=_follow_events, args=(stream, workspace, progress), daemon=True)
        listener.start()
        try:
            yield
        finally:
            stream.stop()
            listener.join()
            progress.erase()


def _follow_events(stream: EventStream, workspace: JsonObject | None, progress: ProgressLine) -> None:
    try:
        for kind, data in (
            stream.all_events()
            if workspace is None
            else stream.workspace_and_agent_events(workspace["project"], workspace["name"])
        ):
            if kind == "agent.installing" and workspace is None:
                progress.show(data["text"], data["text"])
            elif kind == "agent.state" and workspace is not None and (text := describe_progress(data)):
                progress.show(text, text)
    except Failure:
        return  # the thread that sent the request reports it


def describe_progress(record: dict[str, Any]) -> str:
    """Return what a starting agent waits for; an empty text if it waits for nothing."""
    agent = record["agent"]
    if agent["state"] == "running" and agent["detail"]:
        return f"{agent['detail']} ..."
    if agent["state"] not in ("starting", "restarting"):
        return ""
    return f"{agent['detail'] or 'starting the agent'} ..."
