"""`rookery ws restore` and `rookery ws trash`."""

import json
import os
import sys
from datetime import datetime

import click

from rookery.cli import output
from rookery.cli.groups import ListByDefaultGroup
from rookery.cli.output import Column, visible
from rookery.cli.ws.common import JsonObject, WorkspaceClient, quote_segment, workspace_options
from rookery.daemon_client.failure import Failure, translate_errors

_HEADS = [
    Column("NAME", output.VITAL, 16),
    Column("PROJECT", output.MINOR),
    Column("DELETED", min_width=16),
    Column("SIZE", output.MINOR),
    Column("ID", output.VITAL, None),
]
_RESTORE = """\b
Examples:
  rookery ws restore fix-login             the newest with that name
  rookery ws restore 20260704T1015         by the beginning of its id
  rookery ws restore fix-login --to ~/src/fix-login
"""


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return shell completions: names and ids of deleted workspaces. No daemon is started for them."""
    try:
        entries = _list_entries(WorkspaceClient(no_start=True, project=context.params.get("project")))
    except Failure:
        return []
    names = dict.fromkeys(word for entry in entries for word in (entry["name"], entry["id"]))
    return [name for name in names if name.startswith(incomplete)]


@click.command(epilog=_RESTORE)
@click.argument("name", metavar="NAME|ID", shell_complete=_complete)
@click.option("--to", metavar="PATH", type=click.Path(), help="Restore it to this path instead of the original one.")
@workspace_options
def restore(name: str, to: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Restore a deleted workspace.

    This restores its branch, staged and uncommitted changes, ignored files and metadata.
    """
    client = WorkspaceClient(no_start, project)
    entry = _find_entry(client, name)
    body = {} if to is None else {"to": os.path.abspath(to)}  # noqa: PTH100 - pathlib costs as much as click
    data = client.request("POST", f"/api/trash/{quote_segment(entry['id'])}/restore", body)
    if as_json:
        output.write_json(data)
    else:
        output.write(visible(json.loads(data)["path"]))


@click.group(cls=ListByDefaultGroup, epilog="\b\nExamples:\n  rookery ws trash\n  rookery ws trash purge --all\n")
def trash() -> None:
    """The trash: deleted workspaces that can be restored."""


@trash.command("list", epilog="\b\nExamples:\n  rookery ws trash list\n  rookery ws trash list --json\n")
@workspace_options
def list_(project: str | None, as_json: bool, no_start: bool) -> None:
    """List the trash, oldest first. This is the default command."""
    client = WorkspaceClient(no_start, project)
    data = client.request("GET", "/api/trash", project=project)
    if as_json:
        output.write_json(data)
        return
    entries: list[JsonObject] = json.loads(data)
    others = _list_entries(WorkspaceClient(no_start)) if project is not None else []
    short = output.shorten_ids((entry["id"] for entry in entries), (entry["id"] for entry in others))
    rows = [
        [
            entry["name"],
            entry["project"] or "?",
            _format_time(entry["at"]),
            _format_size(entry["size"]),
            short[entry["id"]],
        ]
        for entry in entries
    ]
    output.write(output.format_table(rows, _HEADS) or "the trash is empty")
    for entry in entries:
        if entry.get("error"):
            output.write_note(
                visible(f"{entry['id']} cannot be restored: {entry['error']}. Its files: {entry['path']}")
            )


@trash.command(epilog="\b\nExamples:\n  rookery ws trash purge fix-login\n  rookery ws trash purge --all --yes\n")
@click.argument("name", metavar="[NAME|ID]", required=False, shell_complete=_complete)
@click.option("--all", "every", is_flag=True, help="Purge everything.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@workspace_options
def purge(name: str | None, every: bool, yes: bool, project: str | None, as_json: bool, no_start: bool) -> None:
    """Delete workspaces in the trash permanently."""
    if every == (name is not None):
        raise click.UsageError("name what to purge: NAME, ID or --all")
    client = WorkspaceClient(no_start, project)
    chosen = _list_entries(client) if name is None else [_find_entry(client, name)]
    if chosen and not yes:
        _require_consent(chosen)
    for entry in chosen:
        client.request("DELETE", f"/api/trash/{quote_segment(entry['id'])}")
    if as_json:
        output.write(json.dumps({"purged": [entry["id"] for entry in chosen]}))
    else:
        output.write("\n".join(f"{visible(entry['name'])} is purged" for entry in chosen) or "the trash is empty")


def _require_consent(chosen: list[JsonObject]) -> None:
    names = ", ".join(visible(entry["name"]) for entry in chosen)
    if not sys.stdin.isatty():
        raise Failure("needs-answer", "nothing was purged: confirmation needs a terminal", "use --yes")
    click.confirm(f"Purge {names}? This cannot be undone.", abort=True, err=True)


def _list_entries(client: WorkspaceClient) -> list[JsonObject]:
    return json.loads(client.request("GET", "/api/trash", project=client.project))


def _find_entry(client: WorkspaceClient, wanted: str) -> JsonObject:
    """Return the entry with this id or a unique beginning of it, or the newest entry with this name."""
    from rookery.system.ids import match_prefix

    entries = {entry["id"]: entry for entry in reversed(_list_entries(client))}
    for entry in entries.values():
        if wanted in (entry["id"], entry["name"], f"{entry['project']}/{entry['name']}"):
            return entry
    with translate_errors():
        id_ = match_prefix(wanted, entries, "deleted workspaces")
    if id_ is not None:
        return entries[id_]
    raise Failure("workspace-not-found", f"there is no {wanted} in the trash", "see the trash: rookery ws trash")


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def _format_size(size: int | None) -> str:
    value = float(size or 0)
    for unit in ("B", "KB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
