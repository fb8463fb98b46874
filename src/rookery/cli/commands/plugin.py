"""`rookery plugin`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.arguments import parse_arguments
from rookery.cli.groups import SuggestingGroup
from rookery.cli.output import Column
from rookery.cli.session.common import session_options
from rookery.cli.ws.common import quote_segment
from rookery.daemon_client import connection

_LIST = "\b\nExamples:\n  rookery plugin list\n  rookery plugin list --json\n"
_STATE = """\b
Examples:
  rookery plugin state                      the state of all plugins
  rookery plugin state boulder
  rookery plugin state boulder iteration
"""
_ACTION = """\b
Examples:
  rookery plugin action boulder pause sessionId=ses_...
  rookery plugin action notify say '{"text": "hello"}'
"""
_HEADS = [
    Column("NAME", output.VITAL, 12),
    Column("OF", output.MINOR),
    Column("STATUS", output.VITAL, 14),
    Column("VERSION", output.MINOR),
    Column("WHERE", min_width=12),
    Column("WHAT", output.VITAL, 20, wraps=True),
]
_STYLES = {"failed": "red", "needs_approval": "yellow", "unknown": "dim"}


@click.group(cls=SuggestingGroup, epilog="\b\nExamples:\n  rookery plugin list\n  rookery plugin state boulder\n")
def plugin() -> None:
    """Plugins: list them, show their state, run their actions."""


@plugin.command("list", epilog=_LIST)
@session_options
def list_(as_json: bool, no_start: bool) -> None:
    """List the plugins.

    Lists plugins of Rookery and of OpenCode, including those that could not be loaded or wait for approval.
    """
    data = connection.call("GET", "/api/plugins", start=not no_start)
    records: list[dict[str, Any]] = json.loads(data)
    if as_json:
        output.write_json(data)
    elif records:
        styles = ["red" if record["error"] else _STYLES.get(record["status"]) for record in records]
        output.write(output.format_table([_row(record) for record in records], _HEADS, styles))
    else:
        output.write_note("no plugins")


@plugin.command(epilog=_STATE)
@click.argument("name", required=False)
@click.argument("key", required=False)
@click.option(
    "--workspace", metavar="PATH", help="The workspace, for a state that is stored in files of several workspaces."
)
@session_options
def state(name: str | None, key: str | None, workspace: str | None, as_json: bool, no_start: bool) -> None:
    """Show the state of a plugin.

    Prints the state of one plugin or of all as JSON, or only KEY of it.
    """
    chosen = {"key": key, "workspace": workspace}
    query = "&".join(f"{option}={quote_segment(value)}" for option, value in chosen.items() if value is not None)
    route = f"/api/plugins/{quote_segment(name)}/state" if name is not None else "/api/plugins/state"
    _write_state(connection.call("GET", f"{route}?{query}" if query else route, start=not no_start), as_json)


@plugin.command(epilog=_ACTION)
@click.argument("name")
@click.argument("action")
@click.argument("arguments", nargs=-1)
@session_options
def action(name: str, action: str, arguments: tuple[str, ...], as_json: bool, no_start: bool) -> None:
    """Run an action of a plugin, and show the result.

    ARGUMENTS are one JSON object, - to read one from stdin, or key=value.
    """
    route = f"/api/plugins/{quote_segment(name)}/actions/{quote_segment(action)}"
    body = {"args": parse_arguments(arguments, {})}
    data = connection.call("POST", route, body, start=not no_start)
    _write_state(data if as_json else json.dumps(json.loads(data)["result"]).encode(), as_json)


def _write_state(data: bytes, as_json: bool) -> None:
    if as_json:
        output.write_json(data)
    else:
        output.write(output.visible_lines(json.dumps(json.loads(data), indent=2, ensure_ascii=False)))


def _row(record: dict[str, Any]) -> list[str]:
    off = [f"{hook['name']} is off" for hook in record["hooks"] if hook["off"]]
    features = [hook["name"] for hook in record["hooks"] if not hook["off"]]
    features += [f"{action['name']}()" for action in record["actions"]]
    what = (
        "; ".join([*filter(None, (record["error"], record["note"])), *off])
        or record["description"]
        or ", ".join(features)
    )
    scope = record["workspace"] or record["project"] or "everywhere"
    return [record["name"], record["kind"], record["status"], record["version"] or "", scope, what]
