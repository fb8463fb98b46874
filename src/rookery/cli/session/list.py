"""`rookery session list` and `show`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.session_names import SESSION, Record, Sessions, common
from rookery.cli.session_times import clock
from rookery.cli.visible import visible
from rookery.cli.ws_names import NAME

HEADS = ["ID", "WORKSPACE", "STATUS", "MESSAGES", "LAST ACTIVE", "TITLE"]
_STYLES = {"active": "cyan", "error": "red"}


@click.command("list", epilog="\b\nExamples:\n  rookery session list\n  rookery session list fix-login --json\n")
@NAME
@common
def list_(name: str | None, as_json: bool, no_start: bool) -> None:
    """List the open sessions.

    Of all workspaces, or of the one that is named; the one that was used last first.
    """
    sessions = Sessions(no_start)
    one: dict[str, Any] = sessions.known.one(None if name == "." else name) if name is not None else {}
    data = sessions.ask("GET", project=one.get("project"), workspace=one.get("name"))
    found: list[Record] = json.loads(data)
    if as_json:
        output.answer_json(data)
    elif found:
        rows = [_row(each) for each in found]
        styles = ["yellow" if each["opencode"] == "asking" else _STYLES.get(each["status"]) for each in found]
        output.answer(output.table(rows, HEADS, styles, fit=True))
    else:
        output.answer("no running agent has an open session: rookery session new NAME")


@click.command(epilog="\b\nExamples:\n  rookery session show fix-login\n  rookery session show ses_1a2b --json\n")
@SESSION
@common
def show(session: str, as_json: bool, no_start: bool) -> None:
    """Show one session.

    What it does, in which workspace, with which agent and model, and how its last turn failed.
    """
    sessions = Sessions(no_start)
    data = sessions.ask_of(sessions.id_of(session))
    if as_json:
        output.answer_json(data)
        return
    told: Record = json.loads(data)
    lines = {
        "id": told["id"],
        "title": told["title"],
        "workspace": f"{told['project']}/{told['workspace']}",
        "directory": told["directory"],
        "status": _status(told) + (f": {told['detail']}" if told["detail"] else ""),
        "error": told["error"],
        "messages": str(told["messageCount"]),
        "last active": clock(told["lastActivity"]),
        "agent": told["agent"],
        "model": told["model"],
    }
    width = max(map(len, lines)) + 2
    output.answer("\n".join(f"{key.ljust(width)}{visible(str(value))}" for key, value in lines.items() if value))


def _row(one: Record) -> list[str]:
    count, last = str(one["messageCount"]), clock(one["lastActivity"])
    return [visible(cell) for cell in (one["id"], one["workspace"], _status(one), count, last, one["title"])]


def _status(one: Record) -> str:
    """The status, with OpenCode's own where that says more."""
    own = one["opencode"]
    return one["status"] if own in ("idle", "busy", one["status"]) else f"{one['status']} ({own})"
