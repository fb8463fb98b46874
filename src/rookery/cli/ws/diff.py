"""`rookery ws diff`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.output import Column, visible
from rookery.cli.ws.common import WORKSPACE_ARGUMENT, WorkspaceClient, workspace_options

_EPILOG = """\b
Examples:
  rookery ws diff fix-login
  rookery ws diff fix-login --stat
  rookery ws diff fix-login > fix-login.patch
"""

_HEADS = [
    Column("STATUS", output.MINOR),
    Column("+", output.VITAL),
    Column("-", output.VITAL),
    Column("FILE", output.VITAL, wraps=True),
]
_STYLES = (("+++", "bold"), ("---", "bold"), ("diff ", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"))


@click.command(epilog=_EPILOG)
@WORKSPACE_ARGUMENT
@click.option("--stat", is_flag=True, help="Show only the files and their numbers of changed lines.")
@workspace_options
def diff(name: str | None, stat: bool, project: str | None, as_json: bool, no_start: bool) -> None:
    """Show the changes of a workspace since its base.

    Prints a patch of committed and uncommitted changes, including new files.
    """
    client = WorkspaceClient(no_start, project)
    data = client.request_workspace(client.find(name), "diff")
    if as_json:
        output.write_json(data)
        return
    changes: dict[str, Any] = json.loads(data)
    if not changes["files"]:
        output.write_note(f"nothing has changed since {visible(changes['base'])}")
    elif stat:
        output.write(_format_files(changes["files"]))
    else:
        output.write("\n".join(map(paint_diff_line, output.visible_lines(changes["text"]).split("\n"))))
    for left_out in changes["cut"]:
        output.write_note(f"omitted: {visible(left_out)}")


def _format_files(files: list[dict[str, Any]]) -> str:
    rows: list[list[str]] = []
    for file in files:
        path = f"{file['from']} -> {file['path']}" if file.get("from") else file["path"]
        rows.append([file["status"], _count("+", file["added"]), _count("-", file["deleted"]), path])
    added, deleted = (sum(file[key] or 0 for file in files) for key in ("added", "deleted"))
    return f"{output.format_table(rows, _HEADS)}\n{len(files)} files, +{added} -{deleted}"


def _count(sign: str, count: int | None) -> str:
    return "" if count is None else f"{sign}{count}"


def paint_diff_line(line: str) -> str:
    style = next((style for start, style in _STYLES if line.startswith(start)), None)
    return output.paint(line, style) if style else line
