"""`rookery status`."""

from typing import Any

import click

from rookery.cli import output
from rookery.cli.options import json_option, no_start_option
from rookery.cli.output import Column, visible
from rookery.daemon_client import connection

PROJECT_HEADS = [Column("PROJECT", output.VITAL), Column("PATH", output.VITAL, wraps=True)]
SERVER_HEADS = [
    Column("SERVER", output.VITAL, 12),
    Column("STATUS", output.VITAL, 14),
    Column("TOOLS", output.MINOR),
    Column("IN", output.MINOR),
    Column("", output.VITAL, 20, wraps=True),
]

EPILOG = """\b
Examples:
  rookery status
  rookery status --watch                       live view; those that need you come first
  rookery status --json | jq .daemon.mcp_url
"""


@click.command(epilog=EPILOG)
@click.option("--watch", is_flag=True, help="Keep running and show every change; those that need you come first.")
@json_option
@no_start_option
def status(watch: bool, as_json: bool, no_start: bool) -> None:
    """Show the daemon, workspaces, agents and servers.

    With --watch, the view is redrawn on every change until q or Ctrl-C. If the output is not a terminal, each change is
    printed below the one before; with --json, as one line.
    """
    if watch:
        _watch(as_json, no_start)
        return
    data = connection.call("GET", "/api/status", start=not no_start)
    if as_json:
        output.write_json(data)
        return
    import json

    output.write(render_status(json.loads(data)))


def _watch(as_json: bool, no_start: bool) -> None:
    from rookery.cli import live_view

    # A daemon that stops while it is watched was stopped on purpose, so it is started only by the first request.
    starts = [not no_start]

    def fetch() -> bytes:
        data = connection.call("GET", "/api/status", start=starts[0])
        starts[0] = False
        return data

    def key(report: dict[str, Any]) -> object:
        """Return the report without the daemon's uptime, which always changes."""
        return {**report, "daemon": {**report["daemon"], "uptime_s": None}}

    live_view.run_live_view(fetch, render_live_status, title="rookery status --watch", as_json=as_json, key=key)


def render_status(report: dict[str, Any]) -> str:
    return "\n\n".join(filter(None, [_daemon(report), _projects(report), _workspaces(report), _servers(report)]))


def render_live_status(report: dict[str, Any]) -> str:
    """Return the status with parts that may need the user at the top, since the end may not fit on the screen.

    The uptime is left out: it would not change until the next event.
    """
    from rookery.cli.ws.list import sort_by_attention

    daemon = {**report["daemon"], "uptime_s": None}
    ordered = {**report, "daemon": daemon, "workspaces": sort_by_attention(report["workspaces"])}
    return "\n\n".join(filter(None, [_daemon(ordered), _workspaces(ordered), _servers(ordered), _projects(ordered)]))


def _daemon(report: dict[str, Any]) -> str:
    daemon = report["daemon"]
    uptime = "" if daemon["uptime_s"] is None else f", up {format_duration(daemon['uptime_s'])}"
    lines = [
        _format_labelled("daemon", f"pid {daemon['pid']}{uptime}, version {daemon['version']}"),
        _format_labelled("url", daemon["url"]),
        _format_labelled("mcp", daemon["mcp_url"]),
    ]
    if daemon.get("auth") == "loopback":
        warning = '"loopback": any process that reaches 127.0.0.1 can use workspace and project tools without a token'
        lines.append(output.format_labelled("auth    ", warning, style="yellow"))
    problems = [*daemon["problems"], *map(describe_crash, daemon["crashes"]), *_list_server_problems(report)]
    if failure := daemon.get("notify_failure"):
        problems.append(describe_notify_failure(failure))
    lines += [output.format_labelled("problem: ", problem, style="yellow") for problem in problems]
    return "\n".join(lines)


def _format_labelled(label: str, text: str) -> str:
    return output.format_labelled(f"{label:<8}", text, label_style="bold")


def _projects(report: dict[str, Any]) -> str:
    projects = [[project["name"], project["path"]] for project in report["projects"]]
    return output.format_table(projects, PROJECT_HEADS) or "no projects yet: rookery project add PATH"


def _workspaces(report: dict[str, Any]) -> str:
    from rookery.cli.ws.list import render_workspaces

    return render_workspaces(report["workspaces"], report["workspaces"])


def _servers(report: dict[str, Any]) -> str:
    return output.format_table(list_server_rows(report["servers"]), SERVER_HEADS)


def describe_crash(crash: dict[str, Any]) -> str:
    """Describe the crashes of one background task."""
    times = "once" if crash["count"] == 1 else f"{crash['count']} times"
    again = ", restarted" if crash["restarted"] else ""
    return visible(f"the background task {crash['task']} crashed {times}{again}; last {crash['at']}: {crash['error']}")


def describe_notify_failure(failure: dict[str, Any]) -> str:
    """Describe how the user's own command failed."""
    times = "" if failure["count"] == 1 else f" {failure['count']} times in a row"
    printed = f"; last output: {failure['line']}" if failure["line"] else ""
    return visible(f"notify.command failed{times}; last {failure['at']}: {failure['error']}{printed}")


def _list_server_problems(report: dict[str, Any]) -> list[str]:
    """Return the last errors of the MCP servers of workspaces, and what is withheld of the servers behind them."""
    errors = [(workspace["name"], workspace["mcp"]["last_error"]) for workspace in report["workspaces"]]
    withheld = {server["name"]: server["withheld"] for server in report["servers"] if server["withheld"]}
    return [
        *(visible(f"the MCP server of {name}: {error}") for name, error in errors if error),
        *(visible(f"{name}: {count} withheld: rookery guard diff {name}") for name, count in withheld.items()),
    ]


def list_server_rows(records: list[dict[str, Any]]) -> list[list[str]]:
    """Return the rows of the servers. A server that is equal in several workspaces has one row for all of them.

    Where it has not been used, that is, pending, is left out if it was used in another workspace.
    """
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        if not record["shadowed"]:
            groups.setdefault((record["name"], record["source"]), []).append(record)
    rows: dict[tuple[str, ...], list[str]] = {}
    for copies in groups.values():
        for record in [record for record in copies if record["status"] != "pending"] or copies[:1]:
            row = (record["name"], record["status"], str(record["tools"]), record["error"] or "", record["source"])
            rows.setdefault(row, []).append((record["workspace"] or "").rpartition("/")[2])
    return [[*row[:3], ", ".join(filter(None, places)), row[3]] for row, places in rows.items()]


def format_duration(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
