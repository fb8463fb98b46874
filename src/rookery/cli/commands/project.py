"""`rookery project`."""

import json
import os
from typing import Any
from urllib.parse import quote

import click

from rookery.cli import output
from rookery.cli.groups import SuggestingGroup
from rookery.cli.options import json_option, no_start_option
from rookery.cli.output import Column, visible
from rookery.daemon_client import connection

_HEADS = [Column("PROJECT", output.VITAL, None), Column("PATH", output.VITAL, wraps=True)]


@click.group(cls=SuggestingGroup, epilog="\b\nExamples:\n  rookery project list\n  rookery project add ~/src/app\n")
def project() -> None:
    """Projects: the repositories that are registered with Rookery."""


@project.command(
    "list", epilog="\b\nExamples:\n  rookery project list\n  rookery project list --json | jq '.[].path'\n"
)
@json_option
@no_start_option
def list_(as_json: bool, no_start: bool) -> None:
    """List the projects."""
    data = connection.call("GET", "/api/projects", start=not no_start)
    if as_json:
        output.write_json(data)
        return
    rows = [[record["id"], record["path"]] for record in json.loads(data)]
    output.write(output.format_table(rows, _HEADS) or "no projects yet: rookery project add PATH")


@project.command(epilog="\b\nExamples:\n  rookery project add\n  rookery project add ~/src/app\n")
@click.argument("path", default=".", type=click.Path())
@json_option
@no_start_option
def add(path: str, as_json: bool, no_start: bool) -> None:
    """Register the repository that contains PATH. This runs and opens nothing.

    The first time, this approves the OpenCode config, the justfile and the plugins of its main checkout, and lists
    each of them. If it was removed before, all of it waits for `rookery guard approve`.
    """
    data = connection.call("POST", "/api/projects", {"path": os.path.abspath(path)}, start=not no_start)  # noqa: PTH100
    registration = json.loads(data)
    report_approvals(registration)
    if as_json:
        output.write_json(data)
    else:
        output.write(f"{'added' if registration['added'] else 'already registered:'} {registration['id']}")


def report_approvals(registration: dict[str, Any]) -> None:
    """Write a line to stderr for each thing that registering a project approved, and say what waits instead."""
    for content in registration.get("approved", ()):
        what = f"{visible(content['kind'])} {visible(content['name'])}"
        output.write_note(f"approved by adding the project: {what} ({content['digest'][:12]})")
    if note := registration.get("note"):
        output.write_note(f"{visible(note)} (rookery guard approve)")


@project.command(epilog="\b\nExamples:\n  rookery project remove app\n")
@click.argument("project")
@json_option
@no_start_option
def remove(project: str, as_json: bool, no_start: bool) -> None:
    """Unregister PROJECT, by id or name. Its files are not changed.

    Its checkout, worktrees, branches and deleted workspaces are kept. Add the project again to use them. Its approvals
    are revoked: if you add it again, everything waits for approval.
    """
    data = connection.call("DELETE", f"/api/projects/{quote(project, safe='')}", start=not no_start)
    if as_json:
        output.write_json(data)
        return
    removed = json.loads(data)
    output.write(f"unregistered {visible(removed['id'])}")
    output.write_note(f"{visible(removed['path'])}, its worktrees and its branches are unchanged")
    output.write_note("its approvals are revoked: if you add it again, everything waits for `rookery guard approve`")
