"""`rookery plugin`."""

import json
from typing import Any

import click

from rookery.cli import link, output
from rookery.cli.mcp_arguments import arguments_of
from rookery.cli.session_names import common
from rookery.cli.visible import visible
from rookery.cli.ws_names import quoted

_LIST = "\b\nExamples:\n  rookery plugin list\n  rookery plugin list --json\n"
_STATE = """\b
Examples:
  rookery plugin state                      what all of them tell
  rookery plugin state boulder
  rookery plugin state boulder iteration
"""
_ACTION = """\b
Examples:
  rookery plugin action boulder pause sessionId=ses_...
  rookery plugin action notify say '{"text": "hello"}'
"""
_HEADS = ["NAME", "OF", "STATUS", "VERSION", "WHERE", "WHAT"]
_STYLES = {"failed": "red", "needs_approval": "yellow", "unknown": "dim"}
# An action has a time limit of its own, in the daemon.
_PATIENT = 600.0


@click.group()
def plugin() -> None:
    """Plugins: what they do, what they tell, and what they can be told."""


@plugin.command("list", epilog=_LIST)
@common
def list_(as_json: bool, no_start: bool) -> None:
    """List the plugins.

    Rookery's own and OpenCode's, with those that could not be loaded or wait for approval.
    """
    data = link.call("GET", "/api/plugins", start=not no_start)
    found: list[dict[str, Any]] = json.loads(data)
    if as_json:
        output.answer_json(data)
    elif found:
        styles = ["red" if one["error"] else _STYLES.get(one["status"]) for one in found]
        output.answer(output.table([_row(one) for one in found], _HEADS, styles, fit=True))
    else:
        output.narrate("there are none")


@plugin.command(epilog=_STATE)
@click.argument("name", required=False)
@click.argument("key", required=False)
@click.option("--workspace", metavar="PATH", help="Of a state that several workspaces have in files: which one.")
@common
def state(name: str | None, key: str | None, workspace: str | None, as_json: bool, no_start: bool) -> None:
    """Show what a plugin tells of itself.

    In JSON: of one plugin or of all, whole or one KEY of it.
    """
    chosen = {"key": key, "workspace": workspace}
    asked = "&".join(f"{one}={quoted(value)}" for one, value in chosen.items() if value is not None)
    route = f"/api/plugins/{quoted(name)}/state" if name is not None else "/api/plugins/state"
    _tell(link.call("GET", f"{route}?{asked}" if asked else route, start=not no_start), as_json)


@plugin.command(epilog=_ACTION)
@click.argument("name")
@click.argument("action")
@click.argument("arguments", nargs=-1)
@common
def action(name: str, action: str, arguments: tuple[str, ...], as_json: bool, no_start: bool) -> None:
    """Have a plugin do something, and show what it answers.

    ARGUMENTS are one JSON object, - to read one from stdin, or key=value.
    """
    route = f"/api/plugins/{quoted(name)}/actions/{quoted(action)}"
    body = {"args": arguments_of(arguments, {})}
    data = link.call("POST", route, body, start=not no_start, seconds=_PATIENT)
    _tell(data if as_json else json.dumps(json.loads(data)["result"]).encode(), as_json)


def _tell(data: bytes, as_json: bool) -> None:
    if as_json:
        output.answer_json(data)
    else:
        output.answer(output.foreign(json.dumps(json.loads(data), indent=2, ensure_ascii=False)))


def _row(one: dict[str, Any]) -> list[str]:
    off = [f"{hook['name']} is off" for hook in one["hooks"] if hook["off"]]
    does = [hook["name"] for hook in one["hooks"] if not hook["off"]]
    does += [f"{action['name']}()" for action in one["actions"]]
    what = "; ".join([*filter(None, (one["error"], one["note"])), *off]) or one["description"] or ", ".join(does)
    where = one["workspace"] or one["project"] or "everywhere"
    told = [one["name"], one["kind"], one["status"], one["version"] or "", where, what]
    return [visible(cell) for cell in told]
