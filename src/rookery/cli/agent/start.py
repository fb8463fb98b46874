"""`rookery agent start`, `stop`, `restart` and `resume`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.agent_telling import PATIENT, telling
from rookery.cli.visible import visible
from rookery.cli.ws_names import NAME, Known, common


@click.command(epilog="\b\nExamples:\n  rookery agent start fix-login\n")
@NAME
@common
def start(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Start the agent of a workspace, or wake it.

    Returns when it listens. The workspace is opened if it is closed, and OpenCode is brought if it is not here.
    """
    _turn("start", name, Known(no_start, project, PATIENT), as_json)


@click.command(epilog="\b\nExamples:\n  rookery agent stop fix-login\n")
@NAME
@common
def stop(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Stop the agent of a workspace, until you start it.

    A turn that runs is cut off. The workspace stays open, and so does its MCP endpoint.
    """
    _turn("stop", name, Known(no_start, project, PATIENT), as_json)


@click.command(epilog="\b\nExamples:\n  rookery agent restart fix-login\n")
@NAME
@common
def restart(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Start the agent of a workspace anew, on the same port.

    For after a change of its config, servers or logins. A turn that runs is cut off; `rookery agent resume` takes it
    up again.
    """
    _turn("restart", name, Known(no_start, project, PATIENT), as_json)


@click.command(epilog="\b\nExamples:\n  rookery ws list --attention\n  rookery agent resume fix-login\n")
@NAME
@common
def resume(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Take up the turns that were cut off in a workspace.

    Each session that is shown as interrupted is told to go on from where it was. A first prompt that could not be sent
    is sent.
    """
    _turn("resume", name, Known(no_start, project, PATIENT), as_json)


def _turn(verb: str, name: str | None, known: Known, as_json: bool) -> None:
    one = known.one(name)
    with telling(known, one, silent=as_json):
        data = known.ask_of(one, "agent", verb, method="POST")
    if as_json:
        output.answer_json(data)
        return
    told: dict[str, Any] = json.loads(data)
    output.answer(f"{_resumed(told)} in {visible(one['name'])}" if verb == "resume" else _now(one["name"], told))


def _now(name: str, told: dict[str, Any]) -> str:
    where = f" on port {told['port']}" if told["port"] is not None else ""
    return f"the agent of {visible(name)} is {told['state']}{where}"


def _resumed(told: dict[str, Any]) -> str:
    count = len(told["resumed"])
    if not count:
        return "nothing was cut off"
    return "took up 1 session" if count == 1 else f"took up {count} sessions"
