"""Which session a command is about: an id, or the one of a workspace that was used last."""

import json
import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rookery.cli.failure import Failure
from rookery.cli.ws_names import Known, quoted

F = TypeVar("F", bound=Callable[..., Any])
Record = dict[str, Any]

_ID = "ses_"
# An agent may have to be started first.
_STARTING = 180.0


class Sessions:
    """What the daemon knows of sessions."""

    def __init__(self, no_start: bool, seconds: float = 0.0) -> None:
        """`seconds` is how long a command waits for something by itself."""
        self.known = Known(no_start, seconds=seconds + _STARTING)

    def ask(self, method: str, route: str = "", body: object = None, **query: str | None) -> bytes:
        return self.known.ask(method, f"/api/sessions{route}", body, **query)

    def ask_of(self, id_: str, rest: str = "", method: str = "GET", body: object = None, **query: str | None) -> bytes:
        return self.ask(method, f"/{quoted(id_)}{rest}", body, **query)

    def id_of(self, given: str) -> str:
        """The session that is meant."""
        if given.startswith(_ID):
            return given
        one = self.known.one(None if given == "." else given)
        found: list[Record] = json.loads(self.ask("GET", project=one["project"], workspace=one["name"]))
        if not found:
            raise _none_in(one)
        return found[0]["id"]

    def id_or_none(self, given: str | None) -> str | None:
        return self.id_of(given) if given is not None else None


def _none_in(one: Record) -> Failure:
    word, state = shlex.quote(one["name"]), one["agent"]["state"]
    told, begin = f"{one['name']} has no open session", f"begin one: rookery session new {word}"
    if state == "running":
        return Failure("session-not-found", told, begin)
    # Only a running agent tells which sessions it has.
    told += f": its agent is {state}"
    return Failure("session-not-found", told, f"start it: rookery agent start {word}; or {begin}")


def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For shells: ids and names of workspaces, if a daemon runs; none is started for it."""
    try:
        found: list[Record] = json.loads(Sessions(no_start=True).ask("GET"))
    except Failure:
        return []
    words = [*(one["id"] for one in found), *sorted({one["workspace"] for one in found})]
    return [word for word in words if word.startswith(incomplete)]


def common(command: F) -> F:
    """The options that all these commands have."""
    for option in (
        click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon."),
        click.option("--json", "as_json", is_flag=True, help="Answer in JSON."),
    ):
        command = option(command)
    return command


SESSION = click.argument("session", shell_complete=complete)
ANY_SESSION = click.argument("session", required=False, shell_complete=complete)


def timeout(seconds: float) -> Callable[[F], F]:
    return click.option(
        "--timeout",
        type=click.FloatRange(min=0.001),
        default=seconds,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait at most; then the exit code is 124.",
    )
