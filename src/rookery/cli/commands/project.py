"""`rookery project`."""

import json
import os
from urllib.parse import quote

import click

from rookery.cli import link, output
from rookery.cli.visible import visible


@click.group(epilog="\b\nExamples:\n  rookery project list\n  rookery project add ~/src/app\n")
def project() -> None:
    """The repositories that Rookery knows."""


@project.command("list")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
def list_(as_json: bool, no_start: bool) -> None:
    """List the projects."""
    data = link.call("GET", "/api/projects", start=not no_start)
    if as_json:
        output.answer_json(data)
        return
    rows = [[one["id"], one["path"]] for one in json.loads(data)]
    output.answer(output.table(rows, ["PROJECT", "PATH"]) or "no projects yet: rookery project add PATH")


@project.command()
@click.argument("path", default=".", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
def add(path: str, as_json: bool, no_start: bool) -> None:
    """Register the repository that PATH lies in. Nothing of it is run or opened."""
    data = link.call("POST", "/api/projects", {"path": os.path.abspath(path)}, start=not no_start)  # noqa: PTH100
    if as_json:
        output.answer_json(data)
    else:
        told = json.loads(data)
        output.answer(f"{'added' if told['added'] else 'known already:'} {told['id']}")


@project.command(epilog="\b\nExamples:\n  rookery project remove app\n")
@click.argument("project")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
def remove(project: str, as_json: bool, no_start: bool) -> None:
    """Forget PROJECT, by id or name. Nothing of it is touched.

    Its checkout, worktrees and branches stay as they are, and so does what is in the trash. Add it again to have all
    of them back.
    """
    data = link.call("DELETE", f"/api/projects/{quote(project, safe='')}", start=not no_start)
    if as_json:
        output.answer_json(data)
        return
    told = json.loads(data)
    output.answer(f"forgot {visible(told['id'])}")
    output.narrate(f"nothing was touched: {visible(told['path'])}, its worktrees and branches stay as they are")
