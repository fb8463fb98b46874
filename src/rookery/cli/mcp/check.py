"""`rookery mcp check`: starts all servers once and reports findings, for people and for builds."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.mcp.common import ServerClient, server_options
from rookery.cli.output import Column, visible
from rookery.cli.progress import show_progress

_EPILOG = """\b
Examples:
  rookery mcp check
  rookery mcp check github --json | jq '.findings[].text'
  rookery mcp check && echo fine
"""
_STYLES = {"error": "red", "warning": "yellow", "note": "dim"}
_HEADS = [
    Column("NAME", output.VITAL, 16),
    Column("STATUS", output.VITAL, 14),
    Column("ERA", output.MINOR),
    "TOOLS",
    "TOKENS",
    Column("MS", output.MINOR),
]
_MARKS = {"error": "✗", "warning": "!", "note": "·"}


@click.command(epilog=_EPILOG)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@server_options
def check(names: tuple[str, ...], everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Start every server once and check it.

    This reports whether the server can be reached, its protocol revision, the tokens that its tools cost a model, and
    problems in their names and schemas. Running servers are not affected; servers that wait for approval are not
    started. Exits with 1 if a finding has the level error.
    """
    client = ServerClient(everywhere, no_start)
    with show_progress("starting each server", at_once=True):
        data = client.request("POST", "/api/check", {"servers": list(names)})
    report = json.loads(data)
    if as_json:
        output.write_json(data)
    else:
        output.write(render_check(report))
    if not report["ok"]:
        raise SystemExit(1)


def render_check(report: dict[str, Any]) -> str:
    if not report["servers"]:
        return "no servers yet: rookery mcp add"
    parts = [output.format_table([[str(cell) for cell in _row(server)] for server in report["servers"]], _HEADS)]
    findings = sorted(
        report["findings"], key=lambda finding: (list(_STYLES).index(finding["level"]), finding["server"] or "")
    )
    if findings:
        parts.append("\n".join(_format_finding(finding) for finding in findings))
    counts = [_count(level, sum(finding["level"] == level for finding in findings)) for level in _STYLES]
    parts.append(output.format_labelled("", f"{', '.join(counts)}; {describe_costs(report)}"))
    return "\n\n".join(parts)


def _count(noun: str, number: int) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def describe_costs(costs: dict[str, Any]) -> str:
    """Describe how many tokens the tools cost in a list, and in search mode."""
    listed = costs["list_tokens"]
    searched = costs["search_tokens"]
    return f"about {listed:,} tokens in list mode, {searched:,} in search mode (?mode=search)"


def _row(server: dict[str, Any]) -> list[Any]:
    is_reachable = server["status"] == "reachable"
    cells = [server["tools"], f"~{server['tokens']:,}", round(server["ms"] or 0)] if is_reachable else ["", "", ""]
    return [server["name"], server["status"], server["era"] or "", *cells]


def _format_finding(finding: dict[str, Any]) -> str:
    subject = "/".join(part for part in (finding["server"], finding["tool"]) if part)
    text = f"{visible(subject)}{': ' if subject else ''}{visible(finding['text'])} [{finding['rule']}]"
    return output.format_labelled(f"{_MARKS[finding['level']]} ", text, style=_STYLES[finding["level"]])
