"""`rookery ws diff`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.visible import visible
from rookery.cli.ws_names import NAME, Known, common

_EPILOG = """\b
Examples:
  rookery ws diff fix-login
  rookery ws diff fix-login --stat
  rookery ws diff fix-login > fix-login.patch
"""

_STYLES = (("+++", "bold"), ("---", "bold"), ("diff ", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"))


@click.command(epilog=_EPILOG)
@NAME
@click.option("--stat", is_flag=True, help="Only the files, and how many lines of each.")
@common
def diff(name: str | None, stat: bool, project: str | None, as_json: bool, no_start: bool) -> None:
    """Show what a workspace has changed since its base.

    Committed or not, new files included, as a patch.
    """
    known = Known(no_start, project)
    data = known.ask_of(known.one(name), "diff")
    if as_json:
        output.answer_json(data)
        return
    found: dict[str, Any] = json.loads(data)
    if not found["files"]:
        output.narrate(f"nothing has changed since {visible(found['base'])}")
    elif stat:
        output.answer(_files(found["files"]))
    else:
        output.answer("\n".join(map(painted, output.foreign(found["text"]).split("\n"))))
    for left_out in found["cut"]:
        output.narrate(f"left out: {visible(left_out)}")


def _files(files: list[dict[str, Any]]) -> str:
    rows: list[list[str]] = []
    for one in files:
        path = f"{one['from']} -> {one['path']}" if one.get("from") else one["path"]
        rows.append([one["status"], _count("+", one["added"]), _count("-", one["deleted"]), visible(path)])
    added, deleted = (sum(one[key] or 0 for one in files) for key in ("added", "deleted"))
    return f"{output.table(rows, ['STATUS', '+', '-', 'FILE'])}\n{len(files)} files, +{added} -{deleted}"


def _count(sign: str, count: int | None) -> str:
    return "" if count is None else f"{sign}{count}"


def painted(line: str) -> str:
    style = next((style for start, style in _STYLES if line.startswith(start)), None)
    return output.paint(line, style) if style else line
