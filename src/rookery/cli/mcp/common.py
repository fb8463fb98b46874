"""Parts of all `rookery mcp` commands: the client for servers, of one checkout or global, and the options."""

import json
import os
import shlex
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import click

from rookery.cli.options import json_option, no_start_option
from rookery.daemon_client.connection import REQUEST_SECONDS, DaemonConnection, call, connect_or_start
from rookery.daemon_client.failure import Failure

F = TypeVar("F", bound=Callable[..., Any])

_TOKEN_REMEDY = "the server requires authentication: add it with a token in --header"
_START_TIMEOUT = "start-up timeout"
_WANTS = {
    "needs_auth": "requires a sign-in",
    "needs_client_registration": "requires a registered client",
}


def server_options(command: F) -> F:
    """Add the options that all commands about servers have."""
    for option in (
        no_start_option,
        json_option,
        click.option(
            "--global", "everywhere", is_flag=True, help="Use the global servers, not those of this checkout."
        ),
    ):
        command = option(command)
    return command


class ServerClient:
    """Client for the daemon's routes about MCP servers: those of the current checkout's workspace, or the global ones.

    It has no workspace if the current folder is in none, or with `--global`.
    """

    def __init__(self, everywhere: bool, no_start: bool) -> None:
        self._start = not no_start
        self.checkout = None if everywhere else _find_checkout()
        self.workspace_record = self._fetch_workspace(self.checkout) if self.checkout else None

    @property
    def workspace(self) -> str | None:
        return self.workspace_record["path"] if self.workspace_record else None

    def request(
        self, method: str, path: str, body: object = None, *, seconds: float = REQUEST_SECONDS, **query: str | None
    ) -> bytes:
        """Send a request about the selected servers and return the body. Parameters that are None are left out."""
        selected = {name: value for name, value in {**query, "workspace": self.workspace}.items() if value}
        url = f"{path}?{urlencode(selected)}" if selected else path
        return call(method, url, body, start=self._start, seconds=seconds)

    def request_server(
        self,
        name: str,
        verb: str = "",
        method: str = "POST",
        body: object = None,
        *,
        seconds: float = REQUEST_SECONDS,
        **query: str | None,
    ) -> Any:
        """Send a request about one server and return the parsed response."""
        path = f"/api/mcp/{quote(name, safe='')}" + (f"/{verb}" if verb else "")
        return json.loads(self.request(method, path, body, seconds=seconds, **query))

    def endpoint(self, server: str) -> str | None:
        """Return the MCP endpoint of one server, with the server's own tool names; None outside of a workspace."""
        if self.workspace_record is None:
            return None
        place = f"{quote(self.workspace_record['project'], safe='')}/{quote(self.workspace_record['name'], safe='@')}"
        return f"/w/{place}/s/{quote(server, safe='')}/mcp"

    def connect(self) -> DaemonConnection:
        """Return a connection to the daemon."""
        return connect_or_start(start=self._start)

    def _fetch_workspace(self, checkout: str) -> dict[str, Any] | None:
        url = f"/api/workspaces/at?{urlencode({'path': checkout})}"
        try:
            workspace = json.loads(call("GET", url, start=self._start))
        except Failure as failure:
            if failure.code in ("workspace-not-found", "project-not-found"):
                return None
            raise
        # A checkout nested in a workspace is not that workspace.
        return workspace if os.path.realpath(workspace["path"]) == checkout else None


def _find_checkout() -> str | None:
    """Return the checkout that contains the current folder, without running git; None if there is none."""
    folder = os.path.realpath(".")
    while not os.path.exists(os.path.join(folder, ".git")):  # noqa: PTH110, PTH118 - pathlib costs as much as click
        parent = os.path.dirname(folder)  # noqa: PTH120
        if parent == folder:
            return None
        folder = parent
    return folder


def find_server_failure(record: dict[str, Any]) -> Failure | None:
    """Return the failure of a server and its remedy; None if it can be used."""
    name = record["name"]
    status = record["status"]
    error = record["error"] or record["status"]
    quoted = shlex.quote(name)
    if status == "needs_approval":
        message = f'MCP server "{name}" is defined inside a repository and needs approval'
        return Failure("needs-approval", message, f"review and approve it: rookery guard approve {quoted}")
    if status == "disabled":
        return Failure("server-unavailable", f'MCP server "{name}" is disabled', f"rookery mcp enable {quoted}")
    if status not in ("failed", "backoff", "needs_auth", "needs_client_registration"):
        return None
    if status.startswith("needs"):
        # The error itself ends with the remedy, in parentheses, if there is one here.
        reason, _, hint = (
            error.removesuffix(")").rpartition(" (") if error.endswith(")") else (error, "", _TOKEN_REMEDY)
        )
        return Failure(status.replace("_", "-"), f'MCP server "{name}" {_WANTS[status]}: {reason}', hint)
    unauthorised = "HTTP 401" in error or "HTTP 403" in error
    remedy = _TOKEN_REMEDY if unauthorised else f"see the details: rookery mcp debug {quoted}"
    if _START_TIMEOUT in error:
        remedy = f"the first start may download the server; try again: rookery mcp connect {quoted}"
    return Failure("upstream-failed", f'MCP server "{name}" failed: {error}', remedy)
