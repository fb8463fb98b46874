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

    Returns when it listens. The workspace is opened if it is closed, and OpenCode is brought if it is not here.
    """
    _run_action("start", name, WorkspaceClient(no_start, project, START_SECONDS), as_json)


@click.command(epilog="\b\nExamples:\n  rookery agent stop fix-login\n")
@WORKSPACE_ARGUMENT
@workspace_options
def stop(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Stop the agent of a workspace, until you start it.

    A turn that runs is cut off. The workspace stays open, and so does its MCP endpoint.
    """
    _run_action("stop", name, WorkspaceClient(no_start, project, START_SECONDS), as_json)


@click.command(epilog="\b\nExamples:\n  rookery agent restart fix-login\n")
@WORKSPACE_ARGUMENT
@workspace_options
def restart(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Start the agent of a workspace anew, on the same port.

    For after a change of its config, servers or logins. A turn that runs is cut off; `rookery agent resume` takes it
    up again.
    """
    _run_action("restart", name, WorkspaceClient(no_start, project, START_SECONDS), as_json)


@click.command(epilog="\b\nExamples:\n  rookery ws list --attention\n  rookery agent resume fix-login\n")
@WORKSPACE_ARGUMENT
@workspace_options
def resume(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Take up the turns that were cut off in a workspace.

    Each session that is shown as interrupted is told to go on from where it was. A first prompt that could not be sent
    is sent.
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
        return "nothing was cut off"
    return "took up 1 session" if count == 1 else f"took up {count} sessions"
