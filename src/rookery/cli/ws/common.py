"""Parts of all `rookery ws` commands: the client for workspaces, the argument and the options.

A workspace is named by its name, by project and name, or by the current folder.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from rookery.cli.options import json_option, no_start_option, project_option
from rookery.daemon_client import connection
from rookery.daemon_client.failure import Failure

F = TypeVar("F", bound=Callable[..., Any])
JsonObject = dict[str, Any]


class WorkspaceClient:
    """Client for the daemon's routes about workspaces, of one project or of all."""

    def __init__(self, no_start: bool, project: str | None = None, seconds: float = connection.REQUEST_SECONDS) -> None:
        self.project = project
        self.starts_daemon = not no_start
        self.seconds = seconds

    def request(self, method: str, route: str, /, body: object = None, **query: str | None) -> bytes:
        """Send a request and return the body. Query parameters that are None are left out."""
        pairs = [f"{key}={quote_segment(value)}" for key, value in query.items() if value is not None]
        url = f"{route}?{'&'.join(pairs)}" if pairs else route
        return connection.call(method, url, body, start=self.starts_daemon, seconds=self.seconds)

    def request_workspace(
        self, workspace: JsonObject, *rest: str, method: str = "GET", body: object = None, **query: str | None
    ) -> bytes:
        """Send a request about one workspace and return the body."""
        path = "/".join([quote_segment(workspace["project"]), quote_segment(workspace["name"]), *rest])
        return self.request(method, f"/api/workspaces/{path}", body, **query)

    def list_workspaces(self) -> list[JsonObject]:
        """Return the workspaces of the project, or of all projects."""
        return json.loads(self.request("GET", "/api/workspaces", project=self.project))

    def find(self, name: str | None) -> JsonObject:
        """Return the workspace with this name; without a name, or for `.`, that of the current folder."""
        folder = current_folder()
        if name not in (None, "."):
            return find_workspace(self.list_workspaces(), name, folder)
        if folder is None:
            raise Failure("workspace-not-found", "the current folder does not exist any more", "name a workspace")
        return self.find_by_folder(folder)

    def find_by_folder(self, folder: str) -> JsonObject:
        """Return the workspace that contains a folder."""
        workspace: JsonObject = json.loads(self.request("GET", "/api/workspaces/at", path=folder))
        return workspace


def quote_segment(text: str) -> str:
    """Return the text quoted as one segment of a URL's path or as a value of its query."""
    if text.isascii() and text.replace("-", "").isalnum():
        return text  # the usual case, without the slow import
    from urllib.parse import quote

    return quote(text, safe="@")


def find_workspace(records: Sequence[JsonObject], name: str, folder: str | None) -> JsonObject:
    """Return the workspace with this name: in the current folder's project, else in the only project that has it.

    Raise `Failure` if there is none or more than one.
    """
    here = find_enclosing(records, folder)
    near = [record for record in records if here and record["project"] == here["project"] and record["name"] == name]
    projects = _project_names(records)
    matches = near or [record for record in records if name in _list_names(record, projects[record["project"]])]
    matches = matches or _find_by_project_prefix(records, name)
    if not matches:
        raise Failure("workspace-not-found", f"there is no workspace {name}", _suggest_name(name, records))
    if len(matches) > 1:
        names = ", ".join(f"{record['project']}/{record['name']}" for record in matches)
        raise Failure("invalid-input", f"{name} matches several workspaces", f"name one of: {names}")
    return matches[0]


def find_enclosing(records: Sequence[JsonObject], folder: str | None) -> JsonObject | None:
    """Return the innermost workspace that contains a folder."""
    if folder is None:
        return None
    for resolve in (str, os.path.realpath):
        enclosing = [record for record in records if f"{folder}/".startswith(f"{resolve(record['path'])}/")]
        if enclosing:
            return max(enclosing, key=lambda record: len(record["path"]))
    return None


def current_folder() -> str | None:
    """Return the real path of the current folder, or None if it has been deleted."""
    try:
        return os.path.realpath(".")
    except FileNotFoundError:
        return None


def _project_names(records: Sequence[JsonObject]) -> dict[str, str]:
    """Return the name of each project by its id. It is the name of the main checkout's folder."""
    return {record["project"]: record["path"].rpartition("/")[2] for record in records if record["main"]}


def _list_names(workspace: JsonObject, project: str) -> set[str]:
    """Return all ways to name a workspace."""
    return {workspace["name"], f"{project}/{workspace['name']}", f"{workspace['project']}/{workspace['name']}"}


def _find_by_project_prefix(records: Sequence[JsonObject], name: str) -> list[JsonObject]:
    """Return the workspaces with this name, with the project named by the beginning of its id."""
    project, slash, rest = name.partition("/")
    return [ws for ws in records if slash and project and ws["project"].startswith(project) and ws["name"] == rest]


def _suggest_name(name: str, records: Sequence[JsonObject]) -> str:
    import difflib

    matches = difflib.get_close_matches(name, [record["name"] for record in records], n=1)
    return f"did you mean {matches[0]}?" if matches else "see the workspaces: rookery ws list"


def complete_workspace(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return shell completions: the names of workspaces. No daemon is started for them."""
    try:
        records = WorkspaceClient(no_start=True, project=context.params.get("project")).list_workspaces()
    except Failure:
        return []
    here = find_enclosing(records, current_folder())
    projects = _project_names(records)
    names = [record["name"] for record in records if here is None or record["project"] == here["project"]]
    unique = {name for name in names if names.count(name) == 1}
    others = [f"{projects[record['project']]}/{record['name']}" for record in records if record["name"] not in unique]
    return [name for name in [*sorted(unique), *sorted(others)] if name.startswith(incomplete)]


def workspace_options(command: F) -> F:
    """Add the options that all commands about workspaces have."""
    for option in (
        no_start_option,
        json_option,
        project_option,
    ):
        command = option(command)
    return command


WORKSPACE_ARGUMENT = click.argument("name", required=False, shell_complete=complete_workspace)
