"""`rookery guard diff`, `block` and `trust`: definitions of MCP servers that are withheld, and decisions about them."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

import click

from rookery.cli import output
from rookery.cli.guard.lock import format_drift, load_drift
from rookery.cli.guard.terminal import Terminal
from rookery.cli.options import json_option, no_start_option
from rookery.cli.output import visible
from rookery.daemon_client import connection
from rookery.daemon_client.failure import Failure

_REASONS = {
    "changed": "has changed since it was pinned",
    "new": "is new since the server was pinned",
    "severe": "has severe findings of the scanner",
    "lost": "waits, because the pins were lost",
    "unlocked": "was first listed other than mcp.lock has it",
}
_STYLES = {"removed": "red", "added": "green"}
_MARKS = {"removed": ("[-", "-]"), "added": ("{+", "+}"), "same": ("", "")}
# An unchanged part longer than this is shown by its ends.
_MOST_SAME = 160
_DIFF = """\b
Examples:
  rookery guard diff                  everything that is withheld
  rookery guard diff notes            what is withheld of one server
  rookery guard diff notes tool:read  one definition
  rookery guard diff notes --json | jq '.servers[].waiting[].name'
"""
_BLOCK = """\b
Examples:
  rookery guard block notes tool:read    one definition, whatever it contains
  rookery guard block notes              everything of the server
  rookery guard approve notes            undo it
"""
_TRUST = """\b
Examples:
  rookery guard trust notes --additions
  rookery guard trust notes --no-additions
"""


@click.command(epilog=_DIFF)
@click.argument("server", required=False)
@click.argument("definitions", nargs=-1, metavar="[DEFINITION]...")
@json_option
@no_start_option
def diff(server: str | None, definitions: tuple[str, ...], as_json: bool, no_start: bool) -> None:
    """Show what is withheld of MCP servers, and why.

    Differences from what is pinned are shown word by word: [-removed-] and {+added+}. Invisible and bidirectional
    characters are shown as escapes such as \\u{200b}. Also shows how servers differ from mcp.lock, without starting
    them. Exits with 1 if anything is withheld or differs.
    """
    pins = load_pins(no_start)
    servers = [entry for entry in pins["servers"] if server in (None, entry["name"])]
    drift = [drift for drift in load_drift(no_start) if server in (None, drift["server"])]
    if server is not None and not servers and not drift:
        raise Failure("server-not-found", f"no server {server} has been listed yet", "see: rookery mcp list")
    servers = [
        entry | {"waiting": [item for item in entry["waiting"] if matches(item, definitions)]} for entry in servers
    ]
    if as_json:
        output.write(json.dumps({"servers": servers, "lost": pins["lost"], "drift": drift}))
    else:
        lines = [line for entry in servers for line in format_server(entry, sys.stdout)]
        lines += ["differs from mcp.lock:", *format_drift(drift)] if drift else []
        output.write("\n".join(lines) if lines else "nothing is withheld")
    if any(entry["waiting"] for entry in servers) or any(each["level"] == "error" for each in drift):
        raise SystemExit(1)


@click.command(epilog=_BLOCK)
@click.argument("server")
@click.argument("definitions", nargs=-1, metavar="[DEFINITION]...")
@json_option
@no_start_option
def block(server: str, definitions: tuple[str, ...], as_json: bool, no_start: bool) -> None:
    """Withhold definitions of a server for good, or the whole server."""
    blocked: list[str] = []
    for entry in _select(load_pins(no_start), server):
        items = [item for item in [*entry["waiting"], *entry["pinned"]] if matches(item, definitions)]
        keys = {(item["kind"], item["name"]) for item in items}
        if definitions and not keys:
            continue
        chosen = [{"kind": kind, "name": name} for kind, name in sorted(keys)] if definitions else []
        data = connection.call("POST", "/api/guard/pins/block", _owner(entry) | {"definitions": chosen}, start=False)
        blocked += json.loads(data)["definitions"] or [server]
    if not blocked:
        raise _unknown(server, definitions)
    _write_decision("blocked", server, blocked, as_json)


@click.command(epilog=_TRUST)
@click.argument("server")
@click.option(
    "--additions/--no-additions", required=True, help="Whether new definitions are pinned without asking you."
)
@json_option
@no_start_option
def trust(server: str, additions: bool, as_json: bool, no_start: bool) -> None:
    """Let a server add definitions without asking you.

    Changes of those that are pinned are still withheld.
    """
    entries = _select(load_pins(no_start), server)
    if additions:
        with Terminal() as terminal:
            if not terminal.ask(f"Serve whatever {visible(server)} adds from now on?"):
                raise Failure("needs-approval", "nothing was changed", "new definitions are still withheld")
    for entry in entries:
        body = _owner(entry) | {"additions": additions}
        connection.call("POST", "/api/guard/pins/trust", body, start=False)
    _write_decision("trusted to add" if additions else "no longer trusted to add", server, [server], as_json)


def load_pins(no_start: bool) -> dict[str, Any]:
    """Return the pins of all servers, as the daemon lists them."""
    return json.loads(connection.call("GET", "/api/guard/pins", start=not no_start))


def is_withheld(server: str, tool: str, no_start: bool) -> bool:
    """Return whether a tool of a server is withheld."""
    return any(
        entry["blocked"]
        or any(_key(item) == ("tool", tool) for item in entry["waiting"])
        or any(_key(item) == ("tool", tool) and item["state"] == "blocked" for item in entry["pinned"])
        for entry in load_pins(no_start)["servers"]
        if entry["name"] == server
    )


def matches(item: dict[str, Any], definitions: tuple[str, ...]) -> bool:
    """Return whether a definition is one of those that were named, as NAME or KIND:NAME; any is, if none was."""
    return not definitions or bool({item["name"] or item["kind"], f"{item['kind']}:{item['name']}"} & {*definitions})


def select_waiting(
    pins: dict[str, Any], name: str | None, definitions: tuple[str, ...], everywhere: bool
) -> list[dict[str, Any]]:
    """Return the servers with something to release: those of the user, of this project, or of all projects.

    What is blocked is released only if the server is named.
    """
    here = f"{os.path.realpath('.')}/"
    chosen: list[dict[str, Any]] = []
    for entry in pins["servers"]:
        nearby = not entry["place"].startswith("/") or here.startswith(entry["place"].rstrip("/") + "/")
        if name not in (None, entry["name"]) or not (nearby or everywhere or name is not None):
            continue
        all_blocked = {_key(item): item for item in entry["pinned"] if item["state"] == "blocked"}
        waiting = [item for item in entry["waiting"] if matches(item, definitions)]
        waiting = [item for item in waiting if name or _key(item) not in all_blocked]
        keys = {_key(item) for item in waiting}
        blocked = [item for key, item in all_blocked.items() if name and key not in keys and matches(item, definitions)]
        unblocks = bool(entry["blocked"] and name and not definitions)
        if waiting or blocked or unblocks:
            chosen.append(entry | {"waiting": waiting, "unblocked": blocked, "unblocks": unblocks})
    return chosen


def ask_releases(servers: list[dict[str, Any]], *, accept_loss: bool) -> tuple[list[str], list[str]]:
    """Show what is withheld of each server and ask. Return what was released, and what was not."""
    released: list[str] = []
    kept: list[str] = []
    with Terminal() as terminal:
        for entry in servers:
            for line in format_server(entry, terminal.out):
                terminal.write_line(line)
            items = [*entry["waiting"], *entry["unblocked"]]
            names = [_label(item) for item in items] or [entry["name"]]
            for item in entry["unblocked"]:
                terminal.write_line(f"  {_label(item)} is blocked")
            what = f"{len(items)} definition{'s' if len(items) != 1 else ''} of " if items else "all of "
            if not terminal.ask(f"Serve {what}{visible(entry['name'])}?"):
                kept += names
                continue
            shown = [{"kind": item["kind"], "name": item["name"], "digest": item["digest"]} for item in items]
            body = _owner(entry) | {"definitions": shown, "server": entry["unblocks"], "accept_loss": accept_loss}
            connection.call("POST", "/api/guard/pins/approve", body, start=False)
            released += [f"{entry['name']} {name}" for name in names]
    return released, kept


def format_server(entry: dict[str, Any], stream: TextIO) -> list[str]:
    """Return the lines that show what is withheld of a server."""

    def paint(text: str, style: str) -> str:
        return output.paint(text, style, stream)

    lines: list[str] = []
    if entry["blocked"]:
        lines.append(f"{visible(entry['name'])} is blocked: nothing of it is served")
    for item in entry["waiting"]:
        head = f"{_label(item)} of {visible(entry['name'])}"
        lines.append(f"{paint(head, 'bold')} {_REASONS.get(item['reason'], item['reason'])}{_describe_times(item)}")
        lines += [f"  {visible(entry['place'])}"] if entry["place"].startswith("/") else []
        for field in item["difference"]:
            lines.append(f"  {field['place'] or 'text'}:")
            lines.append("    " + "".join(_format_part(part, paint) for part in field["parts"]))
        for finding in item["findings"]:
            text = f"{finding['severity']}: {finding['rule']} in {visible(finding['place'])}"
            lines.append(f"  {paint(text, 'red' if finding['severity'] == 'severe' else 'yellow')}")
            lines.append(f"    {visible(finding['excerpt'])}")
    return lines


def _format_part(part: dict[str, str], paint: Callable[[str, str], str]) -> str:
    text = part["text"]
    change = part["change"]
    if change == "same":
        half = _MOST_SAME // 2
        return text if len(text) <= _MOST_SAME else f"{text[:half]} … {text[-half:]}"
    opening, closing = _MARKS[change]
    return paint(f"{opening}{text}{closing}", _STYLES[change])


def _describe_times(item: dict[str, Any]) -> str:
    before = f"version {visible(item['pinned_version'])}" if item["pinned_version"] else "another version"
    now = f"version {visible(item['version'])}" if item["version"] else "an unnamed version"
    return f" ({before} before, {now} now)" if item["reason"] == "changed" else f" ({now})"


def _label(item: dict[str, Any]) -> str:
    return f"{item['kind']} {visible(item['name'])}" if item["name"] else item["kind"]


def _key(item: dict[str, Any]) -> tuple[str, str]:
    return item["kind"], item["name"]


def _owner(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: entry[key] for key in ("name", "place", "program")}


def _select(pins: dict[str, Any], server: str) -> list[dict[str, Any]]:
    entries = [entry for entry in pins["servers"] if entry["name"] == server]
    if not entries:
        raise Failure("server-not-found", f"no server {server} has been listed yet", "see: rookery mcp list")
    return entries


def _unknown(server: str, definitions: tuple[str, ...]) -> Failure:
    named = ", ".join(map(visible, definitions))
    remedy = f"name it as NAME or KIND:NAME; see: rookery mcp tools {server}"
    return Failure("invalid-input", f"{server} has no definition {named}", remedy)


def _write_decision(what: str, server: str, names: list[str], as_json: bool) -> None:
    if as_json:
        output.write(json.dumps({"server": server, "definitions": names, "decision": what}))
    else:
        output.write(f"{what}: " + ", ".join(map(visible, names)))
