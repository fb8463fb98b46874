"""`rookery session list` and `show`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.output import Column, visible
from rookery.cli.session.common import SESSION_ARGUMENT, JsonObject, SessionClient, format_time, session_options
from rookery.cli.ws.common import WORKSPACE_ARGUMENT

HEADS = [
    Column("ID", output.VITAL, None),
    Column("WORKSPACE", output.VITAL, 12),
    Column("STATUS", output.VITAL, 9),
    Column("MESSAGES", output.MINOR),
    Column("LAST ACTIVE", min_width=19),
    "TITLE",
]
_STYLES = {"active": "cyan", "error": "red"}


@click.command("list", epilog="\b\nExamples:\n  rookery session list\n  rookery session list fix-login --json\n")
@WORKSPACE_ARGUMENT
@session_options
def list_(name: str | None, as_json: bool, no_start: bool) -> None:
    """List the open sessions.

    Lists the sessions of all workspaces or of one. The most recently used comes first.
    """
    sessions = SessionClient(no_start)
    workspace: dict[str, Any] = sessions.workspaces.find(None if name == "." else name) if name is not None else {}
    data = sessions.request("GET", project=workspace.get("project"), workspace=workspace.get("name"))
    records: list[JsonObject] = json.loads(data)
    if as_json:
        output.write_json(data)
    elif records:
        short = sessions.short_ids(record["id"] for record in records)
        rows = [_row(record, short) for record in records]
        styles = ["yellow" if record["opencode"] == "asking" else _STYLES.get(record["status"]) for record in records]
        output.write(output.format_table(rows, HEADS, styles))
    else:
        output.write("no running agent has an open session: rookery session new NAME")


@click.command(epilog="\b\nExamples:\n  rookery session show fix-login\n  rookery session show ses_1a2b --json\n")
@SESSION_ARGUMENT
@session_options
def show(session: str, as_json: bool, no_start: bool) -> None:
    """Show one session.

    Shows its status, workspace, agent, model, and the error of its last turn.
    """
    sessions = SessionClient(no_start)
    data = sessions.request_session(sessions.resolve_id(session))
    if as_json:
        output.write_json(data)
        return
    record: JsonObject = json.loads(data)
    lines = {
        "id": record["id"],
        "title": record["title"],
        "workspace": f"{record['project']}/{record['workspace']}",
        "directory": record["directory"],
        "status": _describe_status(record) + (f": {record['detail']}" if record["detail"] else ""),
        "error": record["error"],
        "messages": str(record["messageCount"]),
        "last active": format_time(record["lastActivity"]),
        "agent": record["agent"],
        "model": record["model"],
    }
    width = max(map(len, lines)) + 2
    output.write("\n".join(f"{key.ljust(width)}{visible(str(value))}" for key, value in lines.items() if value))


def _row(session: JsonObject, short: dict[str, str]) -> list[str]:
    count = str(session["messageCount"])
    last = format_time(session["lastActivity"])
    return [short[session["id"]], session["workspace"], _describe_status(session), count, last, session["title"]]


def _describe_status(session: JsonObject) -> str:
    """Return the status, with OpenCode's own status if that says more."""
    own = session["opencode"]
    return session["status"] if own in ("idle", "busy", session["status"]) else f"{session['status']} ({own})"
