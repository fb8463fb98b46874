"""`rookery guard lock` writes mcp.lock, and `rookery guard check` compares the servers with it."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.mcp.common import ServerClient
from rookery.cli.options import json_option, no_start_option
from rookery.cli.output import visible
from rookery.cli.progress import show_progress
from rookery.daemon_client.failure import Failure

_LOCK = """\b
Examples:
  rookery guard lock                 all servers that the repository defines
  rookery guard lock github notes    these servers, also your own
  rookery guard lock --offline       without asking npm and PyPI
"""
_CHECK = """\b
Examples:
  rookery guard check
  rookery guard check github --json | jq '.differences[].text'
  rookery guard check --sarif > drift.sarif
"""
_STYLES = {"error": "red", "warning": "yellow", "note": "dim"}
_MARKS = {"error": "✗", "warning": "!", "note": "·"}
_NAMES = click.argument("servers", nargs=-1, metavar="[SERVER]...")
_OFFLINE = click.option("--offline", is_flag=True, help="Do not ask npm and PyPI about packages.")


@click.command(epilog=_LOCK)
@_NAMES
@_OFFLINE
@json_option
@no_start_option
def lock(servers: tuple[str, ...], offline: bool, as_json: bool, no_start: bool) -> None:
    """Write mcp.lock: what the servers are, and what they list.

    The servers are started once, beside those that run. The file has the definition of each server without secrets, the
    versions and hashes of its packages, and a digest of each tool, prompt and template, and of its instructions. Commit
    it, and compare with it in CI: rookery guard check.

    Without names, the servers are those that the repository defines, and those of your own that are in the file; if the
    repository defines none, all of yours. Servers that wait for approval are not started. The exit code is 1 if a
    server could not be locked.
    """
    client = ServerClient(everywhere=False, no_start=no_start)
    with show_progress("starting each server", at_once=True):
        data = client.request("POST", "/api/guard/lock", {"servers": list(servers), "offline": offline})
    written = json.loads(data)
    if as_json:
        output.write_json(data)
    else:
        output.write(_render_lock(written))
    for note in written["notes"]:
        output.write_note(_name(note["server"], note["message"]))
    for problem in written["problems"]:
        output.write_note(f"not locked: {_name(problem['server'], problem['message'])}")
    if written["problems"]:
        raise SystemExit(1)


@click.command(epilog=_CHECK)
@_NAMES
@_OFFLINE
@click.option("--sarif", is_flag=True, help="Print SARIF, for builds and code hosts.")
@json_option
@no_start_option
def check(servers: tuple[str, ...], offline: bool, sarif: bool, as_json: bool, no_start: bool) -> None:
    """Start the servers, and compare them with mcp.lock.

    The definitions of the servers, their packages, and all that they list are compared. Running servers are not
    affected. The exit code is 1 if anything differs, or could not be compared.
    """
    client = ServerClient(everywhere=False, no_start=no_start)
    body = {"servers": list(servers), "offline": offline, "sarif": sarif}
    with show_progress("starting each server", at_once=True):
        data = client.request("POST", "/api/guard/check", body)
    report = json.loads(data)
    if sarif:
        output.write(json.dumps(report["sarif"], indent=2))
    elif as_json:
        output.write_json(data)
    else:
        output.write(_render_check(report))
    if not report["ok"]:
        raise SystemExit(1)


def _render_lock(written: dict[str, Any]) -> str:
    lines: list[str] = []
    for server in written["servers"]:
        packages = [f"{key} {version}" for key, version in server["packages"].items()]
        lines.append(f"{server['name']}: {', '.join([_count(server['pins'], 'pin'), *packages])}")
    state = "written" if written["changed"] else "unchanged"
    return "\n".join([*map(visible, lines), f"{state}: {visible(written['file'])}"])


def _render_check(report: dict[str, Any]) -> str:
    errors = sum(drift["level"] == "error" for drift in report["differences"])
    servers = _count(len(report["servers"]), "server")
    summary = f"{servers} compared: {_count(errors, 'difference')}" if errors else f"{servers} as in mcp.lock"
    return "\n".join([*format_drift(report["differences"]), summary])


def load_drift(no_start: bool) -> list[dict[str, Any]]:
    """Return how the servers of this checkout differ from its mcp.lock, as far as that is known; nothing outside one.

    A file that cannot be used is a difference.
    """
    client = ServerClient(everywhere=False, no_start=no_start)
    if client.workspace is None:
        return []
    try:
        return json.loads(client.request("GET", "/api/guard/drift"))["differences"]
    except Failure as failure:
        if failure.code != "invalid-lock":
            raise
        text = f"{failure.message} ({failure.remedy})"
        return [{"rule": failure.code, "level": "error", "server": "", "subject": "", "text": text, "content": ""}]


def format_drift(differences: list[dict[str, Any]]) -> list[str]:
    """Return lines on the differences, the worst first, each with what is locked and what is there now."""
    lines: list[str] = []
    for drift in sorted(differences, key=lambda drift: list(_STYLES).index(drift["level"])):
        text = f"{_name(drift['server'], drift['text'])} [{drift['rule']}]"
        lines.append(output.format_labelled(f"{_MARKS[drift['level']]} ", text, style=_STYLES[drift["level"]]))
        if drift["content"]:
            lines.append(output.format_labelled("    now: ", visible(drift["content"])))
    return lines


def _name(server: str, text: str) -> str:
    return visible(f"{server}: {text}" if server else text)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
