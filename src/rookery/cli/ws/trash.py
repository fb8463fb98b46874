"""`rookery ws restore` and `rookery ws trash`."""

import json
import os
import sys
from datetime import datetime

import click

from rookery.cli import output
from rookery.cli.failure import Failure
from rookery.cli.lazy import ListByDefault
from rookery.cli.visible import visible
from rookery.cli.ws_names import Known, Record, common, quoted

_RESTORE = """\b
Examples:
  rookery ws restore fix-login             the newest of that name
  rookery ws restore 20260704T101500123456-fix-login
  rookery ws restore fix-login --to ~/src/fix-login
"""


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        found = _entries(Known(no_start=True, project=context.params.get("project")))
    except Failure:
        return []
    names = dict.fromkeys(word for one in found for word in (one["name"], one["id"]))
    return [name for name in names if name.startswith(incomplete)]


@click.command(epilog=_RESTORE)
@click.argument("name", metavar="NAME|ID", shell_complete=_complete)
@click.option("--to", metavar="PATH", type=click.Path(), help="To another place than it was at.")
@common
def restore(name: str, to: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Bring a deleted workspace back.

    With its branch, what was staged, what was not committed, ignored files and metadata.
    """
    known = Known(no_start, project)
    one = _one(known, name)
    body = {} if to is None else {"to": os.path.abspath(to)}  # noqa: PTH100 - pathlib costs as much as click
    data = known.ask("POST", f"/api/trash/{quoted(one['id'])}/restore", body)
    if as_json:
        output.answer_json(data)
    else:
        output.answer(visible(json.loads(data)["path"]))


@click.group(cls=ListByDefault, epilog="\b\nExamples:\n  rookery ws trash\n  rookery ws trash purge --all\n")
def trash() -> None:
    """What was deleted and can be brought back."""


@trash.command("list", epilog="\b\nExamples:\n  rookery ws trash list\n  rookery ws trash list --json\n")
@common
def list_(project: str | None, as_json: bool, no_start: bool) -> None:
    """List what is in the trash, the oldest first. `ws trash` alone does this."""
    known = Known(no_start, project)
    data = known.ask("GET", "/api/trash", project=project)
    if as_json:
        output.answer_json(data)
        return
    rows = [[one["name"], one["project"], _time(one["at"]), _size(one["size"]), one["id"]] for one in json.loads(data)]
    cells = [[visible(cell) for cell in row] for row in rows]
    output.answer(output.table(cells, ["NAME", "PROJECT", "DELETED", "SIZE", "ID"]) or "the trash is empty")


@trash.command(epilog="\b\nExamples:\n  rookery ws trash purge fix-login\n  rookery ws trash purge --all --yes\n")
@click.argument("name", metavar="[NAME|ID]", required=False, shell_complete=_complete)
@click.option("--all", "every", is_flag=True, help="All of it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def purge(name: str | None, every: bool, yes: bool, project: str | None, as_json: bool, no_start: bool) -> None:
    """Remove something from the trash for good."""
    if every == (name is not None):
        raise click.UsageError("say what to purge: NAME, ID or --all")
    known = Known(no_start, project)
    chosen = _entries(known) if name is None else [_one(known, name)]
    if chosen and not yes:
        _must_agree(chosen)
    for one in chosen:
        known.ask("DELETE", f"/api/trash/{quoted(one['id'])}")
    if as_json:
        output.answer(json.dumps({"purged": [one["id"] for one in chosen]}))
    else:
        output.answer("\n".join(f"{visible(one['name'])} is gone" for one in chosen) or "the trash is empty")


def _must_agree(chosen: list[Record]) -> None:
    each = ", ".join(visible(one["name"]) for one in chosen)
    if not sys.stdin.isatty():
        raise Failure("needs-answer", "nothing was purged: nobody is there to ask", "say --yes")
    click.confirm(f"Purge {each}? Nothing brings it back then.", abort=True, err=True)


def _entries(known: Known) -> list[Record]:
    return json.loads(known.ask("GET", "/api/trash", project=known.project))


def _one(known: Known, wanted: str) -> Record:
    """By its id, or the newest of its name."""
    for one in reversed(_entries(known)):
        if wanted in (one["id"], one["name"], f"{one['project']}/{one['name']}"):
            return one
    raise Failure("workspace-not-found", f"there is no {wanted} in the trash", "see what there is: rookery ws trash")


def _time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def _size(size: int | None) -> str:
    left = float(size or 0)
    for unit in ("B", "KB", "MB"):
        if left < 1000:
            return f"{left:.0f} {unit}"
        left /= 1000
    return f"{left:.1f} GB"
