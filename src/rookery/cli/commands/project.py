"""`rookery project`."""

import json
import os
from typing import Any
from urllib.parse import quote

import click

from rookery.cli import link, output
from rookery.cli.groups import SuggestingGroup
from rookery.cli.output import Column, visible

_HEADS = [Column("PROJECT", output.VITAL, None), Column("PATH", output.VITAL, wraps=True)]


@click.group(cls=SuggestingGroup, epilog="\b\nExamples:\n  rookery project list\n  rookery project add ~/src/app\n")
def project() -> None:
    """The repositories that Rookery knows."""


@project.command(
    "list", epilog="\b\nExamples:\n  rookery project list\n  rookery project list --json | jq '.[].path'\n"
)
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
def list_(as_json: bool, no_start: bool) -> None:
    """List the projects."""
    data = link.call("GET", "/api/projects", start=not no_start)
    if as_json:
        output.write_json(data)
        return
    rows = [[record["id"], record["path"]] for record in json.loads(data)]
    output.write(output.format_table(rows, _HEADS) or "no projects yet: rookery project add PATH")


@project.command(epilog="\b\nExamples:\n  rookery project add\n  rookery project add ~/src/app\n")
@click.argument("path", default=".", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
def add(path: str, as_json: bool, no_start: bool) -> None:
    """Register the repository that contains PATH. This runs and opens nothing.

    The first time, this approves the OpenCode config, the justfile and the plugins of its main checkout, and lists
    each of them. Added again after a removal, all of it waits for `rookery guard approve`.
    """
    data = link.call("POST", "/api/projects", {"path": os.path.abspath(path)}, start=not no_start)  # noqa: PTH100
    registration = json.loads(data)
    report_approvals(registration)
    if as_json:
        output.write_json(data)
    else:
        output.write(f"{'added' if registration['added'] else 'known already:'} {registration['id']}")


def report_approvals(registration: dict[str, Any]) -> None:
    """Write a line to stderr for each thing that registering a project approved, and say what waits instead."""
    for content in registration.get("approved", ()):
        what = f"{visible(content['kind'])} {visible(content['name'])}"
        output.write_note(f"approved by adding the project: {what} ({content['digest'][:12]})")
    if note := registration.get("note"):
        output.write_note(f"{visible(note)} (rookery guard approve)")


@project.command(epilog="\b\nExamples:\n  rookery project remove app\n")
@click.argument("project")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
def remove(project: str, as_json: bool, no_start: bool) -> None:
    """Forget PROJECT, by id or name. Nothing of it is touched.

    Its checkout, worktrees and branches stay as they are, and so does what is in the trash. Add it again to have all
    of them back. What you approved of it is forgotten: it waits for you again.
    """
    data = link.call("DELETE", f"/api/projects/{quote(project, safe='')}", start=not no_start)
    if as_json:
        output.write_json(data)
        return
    removed = json.loads(data)
    output.write(f"forgot {visible(removed['id'])}")
    output.write_note(f"nothing was touched: {visible(removed['path'])}, its worktrees and branches stay as they are")
    output.write_note("its approvals are taken back: added again, everything waits for `rookery guard approve`")
