"""`rookery ws meta`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.groups import ListByDefaultGroup
from rookery.cli.output import Column, visible
from rookery.cli.ws.common import WORKSPACE_ARGUMENT, WorkspaceClient, complete_workspace, workspace_options
from rookery.daemon_client.failure import Failure

_EPILOG = """\
A key begins with a letter, and contains letters, digits and hyphens. The key `base` always exists: the workspace is
compared with it.

\b
Examples:
  rookery ws meta                          of the workspace of the current folder
  rookery ws meta fix-login                of another workspace
  rookery ws meta set note "waits for review"
  rookery ws meta get note -w fix-login
"""

_HEADS = [Column("KEY", output.VITAL, 12), Column("VALUE", output.VITAL, 20, wraps=True)]
_WORKSPACE = click.option(
    "-w",
    "--workspace",
    "name",
    metavar="NAME",
    shell_complete=complete_workspace,
    help="The workspace; default: that of the current folder.",
)


@click.group(cls=ListByDefaultGroup, epilog=_EPILOG)
def meta() -> None:
    """Workspace metadata: notes by you or an agent."""


@meta.command("list", epilog="\b\nExamples:\n  rookery ws meta list\n  rookery ws meta list fix-login --json\n")
@WORKSPACE_ARGUMENT
@workspace_options
def list_(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Show all metadata. This is the default command."""
    client = WorkspaceClient(no_start, project)
    data = client.request_workspace(client.find(name), "metadata")
    if as_json:
        output.write_json(data)
        return
    metadata: dict[str, str] = json.loads(data)
    output.write(output.format_table([[key, value] for key, value in metadata.items()], _HEADS))


@meta.command(epilog="\b\nExamples:\n  rookery ws meta get base\n")
@click.argument("key")
@_WORKSPACE
@workspace_options
def get(key: str, name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Print one value."""
    client = WorkspaceClient(no_start, project)
    workspace = client.find(name)
    metadata: dict[str, str] = json.loads(client.request_workspace(workspace, "metadata"))
    if key not in metadata:
        raise Failure("key-not-found", f"{workspace['name']} has no {key}", f"it has the keys: {', '.join(metadata)}")
    output.write(json.dumps(metadata[key]) if as_json else output.visible_lines(metadata[key]))


@meta.command("set", epilog='\b\nExamples:\n  rookery ws meta set note "waits for review"\n')
@click.argument("key")
@click.argument("value")
@_WORKSPACE
@workspace_options
def set_(key: str, value: str, name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Write one value."""
    _write_value(key, value, name, WorkspaceClient(no_start, project), as_json)


@meta.command(epilog="\b\nExamples:\n  rookery ws meta unset note\n")
@click.argument("key")
@_WORKSPACE
@workspace_options
def unset(key: str, name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Remove one value."""
    _write_value(key, None, name, WorkspaceClient(no_start, project), as_json)


def _write_value(key: str, value: str | None, name: str | None, client: WorkspaceClient, as_json: bool) -> None:
    workspace = client.find(name)
    client.request_workspace(workspace, "metadata", method="PUT", body={"key": key, "value": value})
    if as_json:
        output.write_json(client.request_workspace(workspace, "metadata"))
    else:
        change: Any = f"{key} is set" if value is not None else f"{key} is removed"
        output.write(f"{visible(workspace['name'])}: {visible(change)}")
