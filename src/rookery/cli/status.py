"""`rookery status`."""

from typing import Any

import click

from rookery.cli import link, output
from rookery.cli.visible import visible

EPILOG = """\b
Examples:
  rookery status
  rookery status --json | jq .daemon.mcp_url
"""


@click.command(epilog=EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
def status(as_json: bool, no_start: bool) -> None:
    """Show the daemon, workspaces, agents and servers."""
    data = link.call("GET", "/api/status", start=not no_start)
    if as_json:
        output.answer_json(data)
        return
    import json

    output.answer(render(json.loads(data)))


def render(report: dict[str, Any]) -> str:
    daemon = report["daemon"]
    uptime = duration(daemon["uptime_s"])
    lines = [
        f"{output.paint('daemon', 'bold')}  pid {daemon['pid']}, up {uptime}, version {daemon['version']}",
        f"{output.paint('url', 'bold')}     {daemon['url']}",
        f"{output.paint('mcp', 'bold')}     {daemon['mcp_url']}",
    ]
    lines += [output.paint(f"problem: {problem}", "yellow") for problem in [*daemon["problems"], *_troubles(report)]]
    projects = [[project["name"], project["path"]] for project in report["projects"]]
    lines += ["", output.table(projects, ["PROJECT", "PATH"]) or "no projects yet: rookery project add PATH"]
    if report["workspaces"]:
        from rookery.cli.ws_list import tables

        lines += ["", tables(report["workspaces"], report["workspaces"])]
    if report["servers"]:
        lines += ["", output.table(servers(report["servers"]), ["SERVER", "STATUS", "TOOLS", "IN", ""])]
    return "\n".join(lines)


def _troubles(report: dict[str, Any]) -> list[str]:
    """Of the MCP servers of workspaces."""
    found = [(one["name"], one["mcp"]["last_error"]) for one in report["workspaces"]]
    return [visible(f"the MCP server of {name}: {error}") for name, error in found if error]


def servers(records: list[dict[str, Any]]) -> list[list[str]]:
    """Each server once: where it is the same in several places they share a row, and where it was used that counts."""
    same: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in records:
        if not one["shadowed"]:
            same.setdefault((one["name"], one["source"]), []).append(one)
    rows: dict[tuple[str, ...], list[str]] = {}
    for found in same.values():
        for one in [one for one in found if one["status"] != "pending"] or found[:1]:
            row = (one["name"], one["status"], str(one["tools"]), one["error"] or "", one["source"])
            rows.setdefault(row, []).append((one["workspace"] or "").rpartition("/")[2])
    told = [[*row[:3], ", ".join(filter(None, places)), row[3]] for row, places in rows.items()]
    return [[visible(cell) for cell in row] for row in told]


def duration(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
