"""Parts of all `rookery session` commands: the client, the arguments and options, and times.

A session is named by its id, or by its workspace: that selects the most recently used session of the workspace.
"""

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import click

from rookery.cli import output
from rookery.cli.options import json_option, no_start_option
from rookery.cli.ws.common import JsonObject, WorkspaceClient, quote_segment
from rookery.daemon_client import connection
from rookery.daemon_client.failure import Failure

F = TypeVar("F", bound=Callable[..., Any])

_ID_PREFIX = "ses_"
# An agent may have to be started first.
_START_SECONDS = 180.0

# Milliseconds in each unit.
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class SessionClient:
    """Client for the daemon's routes about sessions."""

    def __init__(
        self, no_start: bool, timeout: float | None = None, *, seconds: float = connection.REQUEST_SECONDS
    ) -> None:
        """Create a client. `seconds` is how long it waits for a response.

        For operations that wait for something it is `timeout`, with the time to start an agent.
        """
        self.workspaces = WorkspaceClient(no_start, seconds=seconds if timeout is None else timeout + _START_SECONDS)

    def request(self, method: str, route: str = "", body: object = None, **query: str | None) -> bytes:
        """Send a request to a route below /api/sessions and return the body."""
        return self.workspaces.request(method, f"/api/sessions{route}", body, **query)

    def request_session(
        self, id_: str, rest: str = "", method: str = "GET", body: object = None, **query: str | None
    ) -> bytes:
        """Send a request about one session and return the body."""
        return self.request(method, f"/{quote_segment(id_)}{rest}", body, **query)

    def stream_session(self, id_: str, rest: str, body: object) -> Iterator[tuple[str, bytes]]:
        """Send a request about one session and yield the events of its response."""
        route = f"/api/sessions/{quote_segment(id_)}{rest}"
        return connection.stream_events(
            "POST", route, body, start=self.workspaces.starts_daemon, seconds=self.workspaces.seconds
        )

    def resolve_id(self, name: str) -> str:
        """Return the id of the session named by an id, by the beginning of an id, or by a workspace."""
        if name.startswith(_ID_PREFIX):
            return name
        try:
            workspace = self.workspaces.find(name)
        except Failure as failure:
            # The beginning of an id may be shorter than the prefix that all ids have.
            if failure.code == "workspace-not-found" and name and _ID_PREFIX.startswith(name):
                return name
            raise
        sessions: list[JsonObject] = json.loads(
            self.request("GET", project=workspace["project"], workspace=workspace["name"])
        )
        if not sessions:
            raise _no_session_failure(workspace)
        return sessions[0]["id"]

    def short_ids(self, ids: Iterable[str]) -> dict[str, str]:
        """Return how session ids are shown in a table: shortened on a terminal, unique among all open sessions."""
        if not sys.stdout.isatty():
            return output.shorten_ids(ids)
        sessions: list[JsonObject] = json.loads(self.request("GET"))
        return output.shorten_ids(ids, (session["id"] for session in sessions))

    def resolve_optional_id(self, name: str | None) -> str | None:
        return self.resolve_id(name) if name is not None else None


def describe_ask(ask: JsonObject) -> str:
    """Return what the agent asks, with the command that answers it."""
    return f"the agent asks: {output.visible(ask['text'])} (rookery session answer {ask['id']})"


def _no_session_failure(workspace: JsonObject) -> Failure:
    quoted = shlex.quote(workspace["name"])
    state = workspace["agent"]["state"]
    message = f"{workspace['name']} has no open session"
    hint = f"start one: rookery session new {quoted}"
    if state == "running":
        return Failure("session-not-found", message, hint)
    # Only a running agent reports its sessions.
    message += f": its agent is {state}"
    if state in ("starting", "restarting"):
        return Failure("session-not-found", message, "try again in a moment")
    return Failure("session-not-found", message, f"start it: rookery agent start {quoted}; or {hint}")


def complete_session(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return shell completions: session ids and names of workspaces. No daemon is started for them."""
    try:
        sessions: list[JsonObject] = json.loads(SessionClient(no_start=True).request("GET"))
    except Failure:
        return []
    words = [*(session["id"] for session in sessions), *sorted({session["workspace"] for session in sessions})]
    return [word for word in words if word.startswith(incomplete)]


def session_options(command: F) -> F:
    """Add the options that all commands about sessions have."""
    for option in (
        no_start_option,
        json_option,
    ):
        command = option(command)
    return command


SESSION_ARGUMENT = click.argument("session", shell_complete=complete_session)
SESSIONS_ARGUMENT = click.argument(
    "sessions", metavar="SESSION...", nargs=-1, required=True, shell_complete=complete_session
)
OPTIONAL_SESSION_ARGUMENT = click.argument("session", required=False, shell_complete=complete_session)


def timeout_option(
    seconds: float | None, text: str = "Maximum time to wait; then the exit code is 124."
) -> Callable[[F], F]:
    return click.option(
        "--timeout",
        type=click.FloatRange(min=0.001),
        default=seconds,
        show_default=seconds is not None,
        metavar="SECONDS",
        help=text,
    )


def format_time(moment: float | None) -> str:
    """Return a time in milliseconds since the epoch as local time."""
    if not moment:
        return ""
    from datetime import datetime

    local_time = datetime.fromtimestamp(moment / 1000).astimezone()
    return local_time.strftime("%Y-%m-%d %H:%M:%S")


def format_elapsed(start: float | None, end: float | None) -> str:
    return f"{(end - start) / 1000:.1f} s" if start is not None and end is not None else ""


def _parse_moment(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """Return a time in milliseconds since the epoch, from a number of s, m, h or d ago or from such milliseconds."""
    if text is None:
        return None
    try:
        if text[-1:] not in _UNITS:
            return float(text)
        ago = float(text[:-1]) * _UNITS[text[-1]]
    except ValueError:
        message = f"{text!r} is neither a time ago, such as 30s, 5m or 2h, nor milliseconds since the epoch"
        raise click.BadParameter(message, context, parameter) from None
    from rookery.system.clock import SYSTEM_CLOCK

    return SYSTEM_CLOCK.wall() * 1000 - ago


since_option = click.option(
    "--since", callback=_parse_moment, metavar="WHEN", help="Start at this time ago, such as 30s, 5m or 2h."
)


def format_query_time(moment: float | None) -> str | None:
    return None if moment is None else repr(moment)
