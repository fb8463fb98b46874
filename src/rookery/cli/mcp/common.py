"""Which servers a command is about: those of the checkout that it is run in, or those of everywhere."""

import json
import os
import shlex
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import click

from rookery.cli import link
from rookery.cli.failure import Failure

F = TypeVar("F", bound=Callable[..., Any])

# A server may take as long as its own time-outs allow; the daemon ends what takes longer.
PATIENT = 600.0

_TOKEN = "it wants to know who you are: give it a token with --header when you add it"
_TOO_LONG = "start-up time-out"
_WANTS = {
    "needs_auth": "wants you to sign in",
    "needs_client_registration": "wants a client that is registered with it",
}


def common(command: F) -> F:
    """The options that all these commands have."""
    for option in (
        click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon."),
        click.option("--json", "as_json", is_flag=True, help="Answer in JSON."),
        click.option("--global", "everywhere", is_flag=True, help="The servers of everywhere, not of this checkout."),
    ):
        command = option(command)
    return command


class Where:
    """`found` is the workspace whose checkout this is; None if it is none, or if it does not matter."""

    def __init__(self, everywhere: bool, no_start: bool) -> None:
        self._start = not no_start
        self.checkout = None if everywhere else _checkout()
        self.found = self._workspace(self.checkout) if self.checkout else None

    @property
    def workspace(self) -> str | None:
        return self.found["path"] if self.found else None

    def ask(self, method: str, path: str, body: object = None, **query: str) -> bytes:
        """One call to the daemon about the servers that are meant."""
        if self.workspace:
            query["workspace"] = self.workspace
        asked = f"{path}?{urlencode(query)}" if query else path
        return link.call(method, asked, body, start=self._start, seconds=PATIENT)

    def ask_of(self, name: str, verb: str = "", method: str = "POST", body: object = None) -> Any:
        """One call about one server."""
        path = f"/api/mcp/{quote(name, safe='')}" + (f"/{verb}" if verb else "")
        return json.loads(self.ask(method, path, body))

    def endpoint(self, server: str) -> str | None:
        """Where one server speaks MCP under its own names; there is such a place only inside a workspace."""
        if self.found is None:
            return None
        place = f"{quote(self.found['project'], safe='')}/{quote(self.found['name'], safe='@')}"
        return f"/w/{place}/s/{quote(server, safe='')}/mcp"

    def reach(self) -> link.Link:
        return link.reach(start=self._start)

    def _workspace(self, checkout: str) -> dict[str, Any] | None:
        asked = f"/api/workspaces/at?{urlencode({'path': checkout})}"
        try:
            found = json.loads(link.call("GET", asked, start=self._start))
        except Failure as failure:
            if failure.code in ("workspace-not-found", "project-not-found"):
                return None
            raise
        # A checkout inside of a workspace is another one.
        return found if os.path.realpath(found["path"]) == checkout else None


def _checkout() -> str | None:
    """The checkout that the current folder lies in, found without running git."""
    folder = os.path.realpath(".")
    while not os.path.exists(os.path.join(folder, ".git")):  # noqa: PTH110, PTH118 - pathlib costs as much as click
        above = os.path.dirname(folder)  # noqa: PTH120
        if above == folder:
            return None
        folder = above
    return folder


def broken(record: dict[str, Any]) -> Failure | None:
    """What is wrong with a server, and what to do about it; None if it can be used."""
    name, status, error = record["name"], record["status"], record["error"] or record["status"]
    word = shlex.quote(name)
    if status == "needs_approval":
        told = f'MCP server "{name}" is defined inside a repository and waits for approval'
        return Failure("needs-approval", told, f"look at it and approve it: rookery guard approve {word}")
    if status == "disabled":
        return Failure("server-unavailable", f'MCP server "{name}" is disabled', f"rookery mcp enable {word}")
    if status not in ("failed", "backoff", "needs_auth", "needs_client_registration"):
        return None
    if status.startswith("needs"):
        # The error says itself what to do, where that can be done here.
        said, _, what = error.removesuffix(")").rpartition(" (") if error.endswith(")") else (error, "", _TOKEN)
        return Failure(status.replace("_", "-"), f'MCP server "{name}" {_WANTS[status]}: {said}', what)
    unsigned = "HTTP 401" in error or "HTTP 403" in error
    remedy = _TOKEN if unsigned else f"see what happens: rookery mcp debug {word}"
    if _TOO_LONG in error:
        remedy = f"the first start may have to fetch the server; try again: rookery mcp connect {word}"
    return Failure("upstream-failed", f'MCP server "{name}" failed: {error}', remedy)
