"""`rookery agent list` and `rookery agent show`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.output import Column, visible
from rookery.cli.session.common import SessionClient
from rookery.cli.ws.agent import describe_activity
from rookery.cli.ws.common import WORKSPACE_ARGUMENT, JsonObject, WorkspaceClient, workspace_options

HEADS = [
    Column("NAME", output.VITAL, 16),
    "STATE",
    Column("DOES", output.VITAL),
    Column("PORT", output.MINOR),
    Column("PID", output.MINOR),
    Column("NEEDS YOU", output.VITAL, 20, wraps=True),
]
SESSION_HEADS = [
    Column("SESSION", output.VITAL, None),
    Column("STATE", output.VITAL),
    "TITLE",
    Column("", min_width=12),
]
_STYLES = {"failed": "red", "restarting": "yellow", "starting": "cyan", "asleep": "dim", "stopped": "dim"}


@click.command("list", epilog="\b\nExamples:\n  rookery agent list\n  rookery agent list --json | jq '.[].port'\n")
@workspace_options
def list_(project: str | None, as_json: bool, no_start: bool) -> None:
    """List the agents of all workspaces."""
    client = WorkspaceClient(no_start, project)
    agents = [
        (workspace, _fetch_agent(client, workspace))
        for workspace in client.list_workspaces()
        if workspace["state"] not in ("missing", "deleting")
    ]
    if as_json:
        records = [{"project": workspace["project"], "name": workspace["name"], **agent} for workspace, agent in agents]
        output.write_json(json.dumps(records).encode())
    elif agents:
        several = len({workspace["project"] for workspace, _ in agents}) > 1
        rows = [_row(workspace, agent, several) for workspace, agent in agents]
        styles = ["yellow" if agent["attention"] else _STYLES.get(agent["state"]) for _, agent in agents]
        output.write(output.format_table(rows, HEADS, styles))
    else:
        output.write("no workspaces yet: rookery ws create NAME")


@click.command(epilog="\b\nExamples:\n  rookery agent show\n  rookery agent show fix-login --json\n")
@WORKSPACE_ARGUMENT
@workspace_options
def show(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Show the agent of a workspace, and its sessions.

    This shows its process, the parts it was started without, why it needs you, and the activity of each session.
    """
    client = WorkspaceClient(no_start, project)
    workspace = client.find(name)
    data = client.request_workspace(workspace, "agent")
    if as_json:
        output.write_json(data)
    else:
        agent: dict[str, Any] = json.loads(data)
        short = SessionClient(no_start).short_ids(session["id"] for session in agent["sessions"])
        output.write(render_agent(workspace["name"], agent, short))


def _fetch_agent(client: WorkspaceClient, workspace: JsonObject) -> dict[str, Any]:
    return json.loads(client.request_workspace(workspace, "agent"))


def _row(workspace: JsonObject, agent: dict[str, Any], several: bool) -> list[str]:
    return [
        f"{workspace['project']}/{workspace['name']}" if several else workspace["name"],
        agent["state"],
        describe_activity(agent["status"]),
        str(agent["port"] or ""),
        str(agent["pid"] or ""),
        "; ".join([*_list_errors(agent), *(need["text"] for need in agent["attention"])]),
    ]


def _list_errors(agent: dict[str, Any]) -> list[str]:
    """Return the first line of the error, if there is one. The rest of it is the end of the agent's log."""
    return [agent["error"].partition("\n")[0]] if agent["error"] else []


def render_agent(name: str, agent: dict[str, Any], short: dict[str, str]) -> str:
    """Return the text of `rookery agent show`. `short` has the shown form of each session's id."""
    fields = [
        ("state", ", ".join(filter(None, [agent["state"], agent["detail"], describe_activity(agent["status"])]))),
        ("port", str(agent["port"] or "")),
        ("pid", str(agent["pid"] or "")),
    ]
    lines = [output.paint(visible(name), "bold")]
    lines += [output.format_labelled(f"  {head:<5}  ", visible(text)) for head, text in fields if text]
    errors = (agent["error"] or "").split("\n")
    lines += [output.format_labelled("  error: ", visible(line), style="red") for line in errors if line]
    lines += [output.format_labelled("  note: ", visible(note)) for note in agent["notes"]]
    if agent["needs_restart"]:
        changed = "its servers or its config have changed since it started: rookery agent restart"
        lines.append(output.format_labelled("  ", changed))
    lines += [
        output.format_labelled("  needs you: ", visible(need["text"]), style="yellow") for need in agent["attention"]
    ]
    if agent["sessions"]:
        lines += ["", render_sessions(agent["sessions"], short)]
    return "\n".join(lines)


def render_sessions(sessions: list[dict[str, Any]], short: dict[str, str]) -> str:
    rows = [
        [short[session["id"]], session["state"], session["title"] or "", session["detail"] or ""]
        for session in sessions
    ]
    return output.format_table(rows, SESSION_HEADS)
