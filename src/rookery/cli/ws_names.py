"""Which workspace a command means: by name, by project and name, or the one that the current folder lies in."""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from rookery.cli import link
from rookery.cli.failure import Failure

F = TypeVar("F", bound=Callable[..., Any])
Record = dict[str, Any]

# Git takes as long as a repository is large; the daemon ends what takes longer.
PATIENT = 600.0


class Known:
    """What the daemon knows, of one project or of all."""

    def __init__(self, no_start: bool, project: str | None = None, seconds: float = PATIENT) -> None:
        self.project = project
        self.start = not no_start
        self.seconds = seconds

    def ask(self, method: str, route: str, /, body: object = None, **query: str | None) -> bytes:
        chosen = [f"{key}={quoted(value)}" for key, value in query.items() if value is not None]
        asked = f"{route}?{'&'.join(chosen)}" if chosen else route
        return link.call(method, asked, body, start=self.start, seconds=self.seconds)

    def ask_of(self, one: Record, *rest: str, method: str = "GET", body: object = None, **query: str | None) -> bytes:
        """One call about one workspace."""
        place = "/".join([quoted(one["project"]), quoted(one["name"]), *rest])
        return self.ask(method, f"/api/workspaces/{place}", body, **query)

    def all(self) -> list[Record]:
        return json.loads(self.ask("GET", "/api/workspaces", project=self.project))

    def one(self, name: str | None) -> Record:
        """The one that is meant; without a name that of the current folder."""
        folder = current_folder()
        if name is not None:
            return find(self.all(), name, folder)
        if folder is None:
            raise Failure("workspace-not-found", "the current folder does not exist any more", "name a workspace")
        found: Record = json.loads(self.ask("GET", "/api/workspaces/at", path=folder))
        return found


def quoted(text: str) -> str:
    """As one part of an address."""
    if text.isascii() and text.replace("-", "").isalnum():
        return text  # most are such, and need not wait for the import
    from urllib.parse import quote

    return quote(text, safe="@")


def find(records: Sequence[Record], name: str, folder: str | None) -> Record:
    """A name counts in the current folder's project first, then in any that has it alone."""
    here = around(records, folder)
    near = [one for one in records if here and one["project"] == here["project"] and one["name"] == name]
    projects = _projects(records)
    found = near or [one for one in records if name in _spellings(one, projects[one["project"]])]
    if not found:
        raise Failure("workspace-not-found", f"there is no workspace {name}", _near(name, records))
    if len(found) > 1:
        each = ", ".join(f"{one['project']}/{one['name']}" for one in found)
        raise Failure("invalid-input", f"{name} may be several workspaces", f"say which: {each}")
    return found[0]


def around(records: Sequence[Record], folder: str | None) -> Record | None:
    """The innermost workspace that a folder lies in."""
    if folder is None:
        return None
    for seen in (str, os.path.realpath):
        holding = [one for one in records if f"{folder}/".startswith(f"{seen(one['path'])}/")]
        if holding:
            return max(holding, key=lambda one: len(one["path"]))
    return None


def current_folder() -> str | None:
    try:
        return os.path.realpath(".")
    except FileNotFoundError:
        # It was deleted under our feet.
        return None


def _projects(records: Sequence[Record]) -> dict[str, str]:
    """The name of each project: that of its main checkout's folder."""
    return {one["project"]: one["path"].rpartition("/")[2] for one in records if one["main"]}


def _spellings(one: Record, project: str) -> set[str]:
    return {one["name"], f"{project}/{one['name']}", f"{one['project']}/{one['name']}"}


def _near(name: str, records: Sequence[Record]) -> str:
    import difflib

    found = difflib.get_close_matches(name, [one["name"] for one in records], n=1)
    return f"did you mean {found[0]}?" if found else "see what there is: rookery ws list"


def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For shells: the names, if a daemon runs; none is started for it."""
    try:
        records = Known(no_start=True, project=context.params.get("project")).all()
    except Failure:
        return []
    here = around(records, current_folder())
    projects = _projects(records)
    said = [one["name"] for one in records if here is None or one["project"] == here["project"]]
    alone = {name for name in said if said.count(name) == 1}
    others = [f"{projects[one['project']]}/{one['name']}" for one in records if one["name"] not in alone]
    return [name for name in [*sorted(alone), *sorted(others)] if name.startswith(incomplete)]


def common(command: F) -> F:
    """The options that all these commands have."""
    for option in (
        click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon."),
        click.option("--json", "as_json", is_flag=True, help="Answer in JSON."),
        click.option("--project", metavar="PROJECT", help="Of this project, by id or name."),
    ):
        command = option(command)
    return command


NAME = click.argument("name", required=False, shell_complete=complete)
