"""`rookery agent start`, `stop`, `restart` and `resume`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.agent.progress import START_SECONDS, show_agent_progress
from rookery.cli.output import visible
from rookery.cli.ws.common import WORKSPACE_ARGUMENT, WorkspaceClient, workspace_options


@click.command(epilog="\b\nExamples:\n  rookery agent start fix-login\n")
@WORKSPACE_ARGUMENT
@workspace_options
def start(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Start the agent of a workspace, or wake it.

    Returns when the agent listens. A closed workspace is opened, and OpenCode is installed if it is missing.
    """
    _run_action("start", name, WorkspaceClient(no_start, project, START_SECONDS), as_json)


@click.command(epilog="\b\nExamples:\n  rookery agent stop fix-login\n")
@WORKSPACE_ARGUMENT
@workspace_options
def stop(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Stop the agent of a workspace until you start it again.

    A running turn is interrupted. The workspace and its MCP endpoint stay open.
    """
    _run_action("stop", name, WorkspaceClient(no_start, project), as_json)


@click.command(epilog="\b\nExamples:\n  rookery agent restart fix-login\n")
@WORKSPACE_ARGUMENT
@workspace_options
def restart(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Restart the agent of a workspace on the same port.

    Use this after you change its config, servers or logins. A running turn is interrupted; `rookery agent resume`
    continues it.
    """
    _run_action("restart", name, WorkspaceClient(no_start, project, START_SECONDS), as_json)


@click.command(epilog="\b\nExamples:\n  rookery ws list --attention\n  rookery agent resume fix-login\n")
@WORKSPACE_ARGUMENT
@workspace_options
def resume(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Resume the interrupted turns of a workspace.

    Each interrupted session receives a message to continue where it stopped. A first prompt that could not be sent is
    sent now.
    """
    _run_action("resume", name, WorkspaceClient(no_start, project, START_SECONDS), as_json)


def _run_action(verb: str, name: str | None, client: WorkspaceClient, as_json: bool) -> None:
    workspace = client.find(name)
    with show_agent_progress(client, workspace, silent=as_json):
        data = client.request_workspace(workspace, "agent", verb, method="POST")
    if as_json:
        output.write_json(data)
        return
    result: dict[str, Any] = json.loads(data)
    output.write(
        f"{_describe_resumed(result)} in {visible(workspace['name'])}"
        if verb == "resume"
        else _describe_agent(workspace["name"], result)
    )


def _describe_agent(name: str, agent: dict[str, Any]) -> str:
    port = f" on port {agent['port']}" if agent["port"] is not None else ""
    return f"the agent of {visible(name)} is {agent['state']}{port}"


def _describe_resumed(result: dict[str, Any]) -> str:
    count = len(result["resumed"])
    if not count:
        return "no turn was interrupted"
    return "resumed 1 session" if count == 1 else f"resumed {count} sessions"
