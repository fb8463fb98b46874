"""`rookery ws show`, `path`, `open`, `close`, `dismiss` and `token`."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from rookery.cli import output
from rookery.cli.output import visible
from rookery.cli.ws.agent import describe_agent
from rookery.cli.ws.common import WORKSPACE_ARGUMENT, JsonObject, WorkspaceClient, workspace_options
from rookery.cli.ws.list import describe_changes, describe_state
from rookery.daemon_client.failure import Failure

# How many of the last messages are shown.
_MESSAGES_SHOWN = 10
# How long the daemon waits for a new message before it is asked again, in milliseconds.
_FOLLOW_MILLISECONDS = 60_000

SHOW_EPILOG = """\b
Examples:
  rookery ws show
  rookery ws show fix-login --json
  rookery ws show fix-login --follow      what its agent calls, as it happens
"""


@click.command(epilog=SHOW_EPILOG)
@WORKSPACE_ARGUMENT
@click.option("-f", "--follow", is_flag=True, help="Print its MCP messages as they happen, until you press Ctrl-C.")
@workspace_options
def show(name: str | None, follow: bool, project: str | None, as_json: bool, no_start: bool) -> None:
    """Show one workspace.

    Shows its path, branch, state, changes, MCP server, ports, metadata, and the last MCP messages of its agent and
    other clients.
    """
    client = WorkspaceClient(no_start, project)
    workspace = client.find(name)
    if follow:
        for line in _follow_traffic(client, workspace):
            output.write(json.dumps(line, ensure_ascii=False) if as_json else _describe_message(line))
        return
    data = client.request_workspace(workspace)
    if as_json:
        output.write_json(data)
        return
    exists = workspace["state"] not in ("missing", "deleting")
    environment: dict[str, str] = json.loads(client.request_workspace(workspace, "environment")) if exists else {}
    output.write(render_workspace(json.loads(data), environment))


@click.command(epilog='\b\nExamples:\n  cd "$(rookery ws path fix-login)"\n  cd "$(rookery ws path @main)"\n')
@WORKSPACE_ARGUMENT
@workspace_options
def path(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Print the path of a workspace."""
    workspace = WorkspaceClient(no_start, project).find(name)
    if workspace["state"] == "missing":
        raise Failure(
            "workspace-not-found", f"{workspace['name']} is missing: {workspace['error']}", "restore its folder"
        )
    # Not `visible`: off a terminal, as in `cd "$(...)"`, the path has to stay as it is.
    output.write(json.dumps({"path": workspace["path"]}) if as_json else output.visible_lines(workspace["path"]))


OPEN_EPILOG = """\b
Examples:
  rookery ws open fix-login
  rookery ws open fix-login --no-agent      only its MCP server
"""


@click.command("open", epilog=OPEN_EPILOG)
@WORKSPACE_ARGUMENT
@click.option("--no-agent", is_flag=True, help="Start no agent. One that runs already is not stopped.")
@workspace_options
def open_(name: str | None, no_agent: bool, project: str | None, as_json: bool, no_start: bool) -> None:
    """Open a workspace: its agent and its MCP server may run.

    It is opened again at every start of the daemon. A workspace that was opened with --no-agent stays without an agent
    until you start one (rookery agent start), or open it without that option.
    """
    client = WorkspaceClient(no_start, project)
    workspace = _set_open("open", name, client, as_json, {"agent": not no_agent})
    if no_agent and not as_json and workspace["agent"]["state"] != "stopped":
        output.write_note(
            f"its agent is {workspace['agent']['state']}; stop it: rookery agent stop {workspace['name']}"
        )


@click.command(epilog="\b\nExamples:\n  rookery ws close fix-login\n")
@WORKSPACE_ARGUMENT
@workspace_options
def close(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Close a workspace: stop what runs in it, and keep its files."""
    _set_open("close", name, WorkspaceClient(no_start, project), as_json)


@click.command(epilog="\b\nExamples:\n  rookery ws dismiss fix-login\n")
@WORKSPACE_ARGUMENT
@click.option("--session", metavar="ID", help="Only those of this session.")
@workspace_options
def dismiss(name: str | None, session: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Dismiss the failed turns of a workspace.

    A session whose last turn failed needs you until a later turn succeeds, or until you dismiss it.
    """
    client = WorkspaceClient(no_start, project)
    workspace = client.find(name)
    data = client.request_workspace(workspace, "agent", "dismiss", method="POST", body={"session": session})
    if as_json:
        output.write_json(data)
        return
    count = len(json.loads(data)["dismissed"])
    message = f"{count} failed turn{'s' * (count != 1)} dismissed" if count else "no turn has failed"
    output.write(f"{message} in {visible(workspace['name'])}")


@click.command(epilog='\b\nExamples:\n  export ROOKERY_TOKEN="$(rookery ws token fix-login)"\n')
@WORKSPACE_ARGUMENT
@workspace_options
def token(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Print a token that is valid for one workspace only.

    With it, a client can use the MCP server of this workspace, and nothing else of Rookery.
    """
    client = WorkspaceClient(no_start, project)
    data = client.request_workspace(client.find(name), "token")
    if as_json:
        output.write_json(data)
    else:
        output.write(json.loads(data)["token"])


def _set_open(verb: str, name: str | None, client: WorkspaceClient, as_json: bool, body: object = None) -> JsonObject:
    workspace = client.find(name)
    data = client.request_workspace(workspace, verb, method="POST", body=body)
    changed: JsonObject = json.loads(data)
    if as_json:
        output.write_json(data)
    else:
        output.write(f"{visible(workspace['name'])} is {'open' if verb == 'open' else 'closed'}")
        if verb == "open":
            output.write_note(f"its MCP server: {_describe_endpoint(changed)}")
    return changed


def render_workspace(workspace: JsonObject, environment: dict[str, str]) -> str:
    status: dict[str, Any] | None = workspace.get("status")
    fields = [
        ("project", workspace["project"]),
        ("path", workspace["path"]),
        ("branch", workspace["branch"] or "(detached)"),
        ("state", describe_state(workspace)),
        ("error", workspace["error"] or ""),
        ("changes", (describe_changes(status) or "none") if status else ""),
        ("conflicts", ", ".join(status.get("conflicts", ())) if status else ""),
        ("agent", _describe_process(workspace)),
        ("mcp", _describe_endpoint(workspace)),
        ("ports", environment.get("ROOKERY_PORTS", "")),
    ]
    lines = [output.paint(visible(workspace["name"]), "bold")]
    lines += [f"  {head:<9}  {visible(text)}" for head, text in fields if text]
    lines += [
        output.paint(f"  needs you: {visible(reason['text'])}", "yellow") for reason in workspace.get("attention", ())
    ]
    if workspace.get("metadata"):
        lines += ["  metadata", *(f"    {key}: {visible(value)}" for key, value in workspace["metadata"].items())]
    messages: list[JsonObject] = workspace["mcp"]["traffic"][-_MESSAGES_SHOWN:]
    if messages:
        lines += ["  messages", *(f"    {_describe_message(message)}" for message in messages)]
    return "\n".join(lines)


def _follow_traffic(client: WorkspaceClient, workspace: JsonObject) -> Iterator[JsonObject]:
    """Yield the last messages of a workspace, and then each new one."""
    since = 0
    while True:
        query = {"since": str(since), "timeout": str(_FOLLOW_MILLISECONDS)}
        page = json.loads(client.request_workspace(workspace, "traffic", **query))
        yield from page["lines"]
        since = page["next"]


def _describe_message(line: JsonObject) -> str:
    """Return one message as a line: when, which way, what, and how large."""
    at = datetime.fromtimestamp(line["time"]).astimezone().strftime("%H:%M:%S")
    what = f"{line['method']} {line['tool']}" if line["tool"] else line["method"]
    server = f"{line['server']}: " if line["server"] else ""
    took = f", {line['ms']:.1f} ms" if line["ms"] is not None else ""
    error = f", error {line['error']}" if line["error"] is not None else ""
    arrow = "->" if line["direction"] == "in" else "<-"
    text = visible(f"{at} {arrow} {server}{what} ({line['bytes']:,} bytes{took}{error})")
    return output.paint(text, "red") if error else text


def _describe_process(workspace: JsonObject) -> str:
    agent = workspace["agent"]
    port = f"port {agent['port']}" if agent["port"] is not None else ""
    return ", ".join(filter(None, [describe_agent(workspace) or "none", port, agent.get("detail") or ""]))


def _describe_endpoint(workspace: JsonObject) -> str:
    mcp = workspace["mcp"]
    clients = mcp["connected_clients"]
    parts = [mcp["url"] or "", f"{clients} client{'s' * (clients != 1)}" if clients else "", mcp["last_error"] or ""]
    return ", ".join(filter(None, parts))
