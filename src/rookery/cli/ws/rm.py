"""`rookery ws rm`."""

import json
import os
import shlex
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.output import Column, visible
from rookery.cli.progress import EventStream, ProgressLine
from rookery.cli.ws.common import (
    JsonObject,
    WorkspaceClient,
    complete_workspace,
    current_folder,
    find_enclosing,
    find_workspace,
    workspace_options,
)
from rookery.daemon_client.failure import Failure, make_failure

_MERGED_HEADS = [
    Column("NAME", output.VITAL, 16),
    Column("BRANCH", output.MINOR),
    "MERGED INTO",
    "HOW",
    Column("PATH", output.MINOR, 16),
]
_EPILOG = """\b
Examples:
  rookery ws rm fix-login
  rookery ws rm fix-login --keep-branch
  rookery ws rm --merged                   all merged workspaces, after a confirmation
  rookery ws restore fix-login             it was moved to the trash
"""

_STEPS = {"stop": "stopping processes", "processes": "looking for processes"}


class Removal:
    """Deletes workspaces with the options of one command, and follows each deletion."""

    def __init__(
        self, client: WorkspaceClient, stream: EventStream, progress: ProgressLine, *, force: bool, keep_branch: bool
    ) -> None:
        self._client = client
        self._stream = stream
        self._progress = progress
        self._force = force
        self._keep_branch = keep_branch

    def begin(self, workspace: JsonObject, *, force: bool = False) -> None:
        """Start the deletion of a workspace."""
        query = {"force": _flag(force or self._force), "keepBranch": _flag(self._keep_branch)}
        self._client.request_workspace(workspace, method="DELETE", **query)

    def follow(self, workspace: JsonObject) -> dict[str, Any]:
        """Show a deletion until the workspace is in the trash, and return the last progress record."""
        for kind, data in self._stream.workspace_events(workspace["project"], workspace["name"]):
            progress = data.get("progress")
            if progress is None:
                continue
            if kind == "deleting" and progress["step"]:
                text = _STEPS.get(progress["step"], "moving to the trash")
                self._progress.show(f"{workspace['name']} {text}", f"{workspace['name']}: {text} ...")
            elif kind == "deleted":
                for process in progress["processes"]:
                    self._progress.write_line(
                        f"a process that Rookery did not start still runs in the folder, which is in the trash: "
                        f"pid {process['pid']}, {process['command']}"
                    )
                return progress
            elif kind == "failed":
                raise make_failure(progress["error"])
        raise AssertionError("the events do not end")


@click.command(epilog=_EPILOG)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_workspace)
@click.option("--force", is_flag=True, help="Delete also uncommitted and unmerged work; the trash keeps it.")
@click.option("--keep-branch", is_flag=True, help="Keep the branch.")
@click.option("--merged", is_flag=True, help="Delete all that are clean and whose work is in a branch that stays.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--no-wait", is_flag=True, help="Return when the deletion has begun.")
@workspace_options
def rm(
    names: tuple[str, ...],
    force: bool,
    keep_branch: bool,
    merged: bool,
    yes: bool,
    no_wait: bool,
    project: str | None,
    as_json: bool,
    no_start: bool,
) -> None:
    """Delete workspaces; they go to the trash.

    Without --force, a workspace is refused with 3 if its work is not committed, or in no branch that stays. Branches
    that stay are its base, any other local branch that no workspace uses, and remote branches; a pushed copy of its
    own branch does not count. The reasons are listed. The trash keeps the whole folder and the branch in any case, and
    `rookery ws restore` restores them.
    """
    if merged and (names or force):
        raise click.UsageError("--merged cannot be combined with NAME or --force")
    client = WorkspaceClient(no_start, project)
    progress = ProgressLine(silent=as_json)
    chosen = _find_merged(client, yes, as_json) if merged else _find_named(client, names, yes)
    current = find_enclosing(chosen, current_folder())
    main_checkout = _leave_folder(client, current)
    deleted: list[JsonObject] = []
    failures: list[Failure] = []
    with EventStream(start=not no_start) as stream:
        removal = Removal(client, stream, progress, force=force, keep_branch=keep_branch)
        for workspace in chosen:
            try:
                _begin_removal(removal, workspace, ask=not (yes or as_json))
                result = {} if no_wait else removal.follow(workspace)
                branch = result.get("mergedInto")
                details = {"trash": result.get("trash"), "processes": result.get("processes", []), "mergedInto": branch}
                deleted.append({"project": workspace["project"], "name": workspace["name"], **details})
                progress.erase()
                if not as_json:
                    note = f"; its commits are in {visible(branch)}" if branch else ""
                    output.write(
                        f"{visible(workspace['name'])} is {'being deleted' if no_wait else 'in the trash'}{note}"
                    )
            except Failure as failure:
                progress.erase()
                failures.append(failure)
                if len(chosen) > 1:
                    progress.write_line(f"{workspace['name']}: {failure.message.partition(chr(10))[0]}")
    if as_json:
        output.write(json.dumps({"deleted": deleted}))
    elif main_checkout and any(_is_same(record, current) for record in deleted):
        progress.write_line(
            f"the current folder was moved to the trash; continue with: cd {shlex.quote(main_checkout)}"
        )
    if failures:
        raise failures[0]


def _find_named(client: WorkspaceClient, names: tuple[str, ...], yes: bool) -> list[JsonObject]:
    """Return the named workspaces; without names, that of the current folder, after asking.

    All names are resolved before the first workspace is deleted.
    """
    if names:
        records = client.list_workspaces()
        matches = [find_workspace(records, name, current_folder()) for name in names]
        return list({(workspace["project"], workspace["name"]): workspace for workspace in matches}.values())
    workspace = client.find(None)
    if not yes:
        _require_consent(
            f"Delete {visible(workspace['name'])}, the workspace of the current folder?",
            "use --yes, or name the workspace",
        )
    return [workspace]


def _find_merged(client: WorkspaceClient, yes: bool, as_json: bool) -> list[JsonObject]:
    """Return the workspaces that are merged and clean, after showing them and asking."""
    merged: list[JsonObject] = json.loads(client.request("GET", "/api/workspaces/merged", project=client.project))
    if not merged:
        output.write_note("no workspace is merged and clean")
        return []
    if not as_json:
        rows = [
            [
                workspace["name"],
                workspace["branch"] or "",
                workspace["mergedInto"] or "",
                workspace["how"],
                workspace["path"],
            ]
            for workspace in merged
        ]
        output.write_note(output.format_table(rows, _MERGED_HEADS, stream=sys.stderr))
    if not yes:
        _require_consent(f"Delete these {len(merged)} workspaces?", "use --yes")
    return merged


def _begin_removal(removal: Removal, workspace: JsonObject, *, ask: bool) -> None:
    """Start a deletion. If the workspace is not clean, show why, and delete it if the user confirms."""
    try:
        removal.begin(workspace)
    except Failure as failure:
        if failure.code != "workspace-not-clean" or not ask or not sys.stdin.isatty():
            raise
        output.write_note("\n".join(map(visible, failure.message.split("\n"))))
        if not click.confirm("Move it to the trash anyway?", err=True):
            raise Failure(failure.code, f"{workspace['name']} was not deleted", failure.remedy) from None
        removal.begin(workspace, force=True)


def _require_consent(question: str, remedy: str) -> None:
    if not sys.stdin.isatty():
        raise Failure("needs-answer", "nothing was deleted: confirmation needs a terminal", remedy)
    click.confirm(question, abort=True, err=True)


def _leave_folder(client: WorkspaceClient, workspace: JsonObject | None) -> str | None:
    """Leave the current folder if it is in a workspace to delete, and return the main checkout, to go to instead."""
    if workspace is None:
        return None
    os.chdir("/")
    mains = [main for main in client.list_workspaces() if main["main"] and main["project"] == workspace["project"]]
    return mains[0]["path"] if mains else None


def _is_same(workspace: JsonObject, other: JsonObject | None) -> bool:
    return other is not None and (workspace["project"], workspace["name"]) == (other["project"], other["name"])


def _flag(value: bool) -> str | None:
    return "true" if value else None
