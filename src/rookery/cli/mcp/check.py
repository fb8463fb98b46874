"""`rookery mcp check`: all servers started once and judged, for people and for a build."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.mcp_where import Where, common
from rookery.cli.visible import visible
from rookery.cli.waiting import waiting

_EPILOG = """\b
Examples:
  rookery mcp check
  rookery mcp check github --json | jq '.findings[].text'
  rookery mcp check && echo fine
"""
_STYLES = {"error": "red", "warning": "yellow", "note": "dim"}
_MARKS = {"error": "✗", "warning": "!", "note": "·"}


@click.command(epilog=_EPILOG)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@common
def check(names: tuple[str, ...], everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Start every server once and judge it.

    Whether it can be reached, which revision it speaks, what its tools cost a model to read, and what is wrong with
    their names and schemas. Servers that run already are left alone; those that wait for approval are not started.
    Exits with 1 if there is a finding of the level error.
    """
    where = Where(everywhere, no_start)
    with waiting("starting each server once", at_once=True):
        data = where.ask("POST", "/api/check", {"servers": list(names)})
    found = json.loads(data)
    if as_json:
        output.answer_json(data)
    else:
        output.answer(shown(found))
    if not found["ok"]:
        raise SystemExit(1)


def shown(found: dict[str, Any]) -> str:
    if not found["servers"]:
        return "no servers yet: rookery mcp add"
    rows = [[_text(cell) for cell in _row(one)] for one in found["servers"]]
    parts = [output.table(rows, ["NAME", "STATUS", "ERA", "TOOLS", "TOKENS", "MS"])]
    findings = sorted(found["findings"], key=lambda one: (list(_STYLES).index(one["level"]), one["server"] or ""))
    if findings:
        parts.append("\n".join(_line(one) for one in findings))
    counts = [_count(level, sum(one["level"] == level for one in findings)) for level in _STYLES]
    parts.append(f"{', '.join(counts)}; {costs(found)}")
    return "\n\n".join(parts)


def _count(what: str, number: int) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def costs(found: dict[str, Any]) -> str:
    """What tools cost in a list, and what they cost where they are searched."""
    listed, searched = found["list_tokens"], found["search_tokens"]
    return f"about {listed:,} tokens in a list, {searched:,} where clients search instead (?mode=search)"


def _row(one: dict[str, Any]) -> list[Any]:
    judged = one["status"] == "reachable"
    told = [one["tools"], f"~{one['tokens']:,}", round(one["ms"] or 0)] if judged else ["", "", ""]
    return [one["name"], one["status"], one["era"] or "", *told]


def _line(one: dict[str, Any]) -> str:
    about = "/".join(part for part in (one["server"], one["tool"]) if part)
    told = f"{_MARKS[one['level']]} {visible(about)}{': ' if about else ''}{visible(one['text'])} [{one['rule']}]"
    return output.paint(told, _STYLES[one["level"]])


def _text(cell: Any) -> str:
    return visible(str(cell))
