"""`rookery ws meta`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.failure import Failure
from rookery.cli.lazy import ListByDefault
from rookery.cli.visible import visible
from rookery.cli.ws_names import NAME, Known, common, complete

_EPILOG = """\
A key begins with a letter, and has letters, digits and hyphens. `base` is always there: what the workspace is
compared with.

\b
Examples:
  rookery ws meta                          all of the current folder's workspace
  rookery ws meta fix-login                all of another one
  rookery ws meta set note "waits for review"
  rookery ws meta get note -w fix-login
"""

_WORKSPACE = click.option(
    "-w", "--workspace", "name", metavar="NAME", shell_complete=complete, help="Of this workspace."
)


@click.group(cls=ListByDefault, epilog=_EPILOG)
def meta() -> None:
    """The metadata of a workspace: what you or an agent note about it."""


@meta.command("list", epilog="\b\nExamples:\n  rookery ws meta list\n  rookery ws meta list fix-login --json\n")
@NAME
@common
def list_(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Show all of it. `ws meta` alone does this."""
    known = Known(no_start, project)
    data = known.ask_of(known.one(name), "metadata")
    if as_json:
        output.answer_json(data)
        return
    found: dict[str, str] = json.loads(data)
    output.answer(output.table([[visible(key), visible(value)] for key, value in found.items()], ["KEY", "VALUE"]))


@meta.command(epilog="\b\nExamples:\n  rookery ws meta get base\n")
@click.argument("key")
@_WORKSPACE
@common
def get(key: str, name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Print one value."""
    known = Known(no_start, project)
    one = known.one(name)
    found: dict[str, str] = json.loads(known.ask_of(one, "metadata"))
    if key not in found:
        raise Failure("key-not-found", f"{one['name']} has no {key}", f"it has: {', '.join(found)}")
    output.answer(json.dumps(found[key]) if as_json else output.foreign(found[key]))


@meta.command("set", epilog='\b\nExamples:\n  rookery ws meta set note "waits for review"\n')
@click.argument("key")
@click.argument("value")
@_WORKSPACE
@common
def set_(key: str, value: str, name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Write one value."""
    _write(key, value, name, Known(no_start, project), as_json)


@meta.command(epilog="\b\nExamples:\n  rookery ws meta unset note\n")
@click.argument("key")
@_WORKSPACE
@common
def unset(key: str, name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Remove one value."""
    _write(key, None, name, Known(no_start, project), as_json)


def _write(key: str, value: str | None, name: str | None, known: Known, as_json: bool) -> None:
    one = known.one(name)
    known.ask_of(one, "metadata", method="PUT", body={"key": key, "value": value})
    if as_json:
        output.answer_json(known.ask_of(one, "metadata"))
    else:
        done: Any = f"{key} is set" if value is not None else f"{key} is not set any more"
        output.answer(f"{visible(one['name'])}: {visible(done)}")
