"""`rookery boulder`: switched on and off, paused, stopped, reset."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.boulder_names import Boulder, told
from rookery.cli.boulder_show import log, status
from rookery.cli.session_names import ANY_SESSION, SESSION, common
from rookery.cli.visible import visible
from rookery.cli.ws_names import complete

_ON = """\b
Examples:
  rookery boulder on fix-login                     its session that was used last
  rookery boulder on ses_1a2b --budget 10 --check plan:PLAN.md --check just:test
  rookery boulder on --workspace fix-login         all its sessions, from now on
  rookery boulder on --project app
"""
_EPILOG = """\
SESSION is an id, or the name of a workspace: then its session that was used last is meant. The current folder's
workspace is a dot.

\b
Examples:
  rookery boulder on fix-login
  rookery boulder status
  rookery boulder pause fix-login
  rookery boulder log
"""


@click.group(epilog=_EPILOG)
def boulder() -> None:
    """Boulder: tells sessions that have stopped with work left to go on."""


boulder.add_command(status)


@boulder.command(epilog=_ON)
@ANY_SESSION
@click.option("--workspace", metavar="NAME", shell_complete=complete, help="For all sessions of a workspace.")
@click.option("--project", metavar="PROJECT", help="For all sessions of a project, by id or name.")
@click.option(
    "--check", "checks", multiple=True, metavar="CHECK", help="todos, plan:FILE or just:TASK; may be given again."
)
@click.option("--budget", type=click.IntRange(0, 1000), metavar="N", help="How many enforcements a session gets.")
@common
def on(
    session: str | None,
    workspace: str | None,
    project: str | None,
    checks: tuple[str, ...],
    budget: int | None,
    as_json: bool,
    no_start: bool,
) -> None:
    """Switch boulder on for a session, a workspace or a project.

    What is said of a session counts more than what is said of its workspace, and that more than of its project.
    """
    asked = Boulder(no_start)
    args: dict[str, Any] = asked.subject(session, workspace, project)
    if checks:
        args["checks"] = ",".join(checks)
    if budget is not None:
        args["budget"] = budget
    _switched(asked, "on", args, as_json)


@boulder.command(epilog="\b\nExamples:\n  rookery boulder off fix-login\n  rookery boulder off --workspace fix-login\n")
@ANY_SESSION
@click.option("--workspace", metavar="NAME", shell_complete=complete, help="For all sessions of a workspace.")
@click.option("--project", metavar="PROJECT", help="For all sessions of a project, by id or name.")
@common
def off(session: str | None, workspace: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Switch boulder off for a session, a workspace or a project.

    What it has counted so far is kept.
    """
    asked = Boulder(no_start)
    _switched(asked, "off", asked.subject(session, workspace, project), as_json)


@boulder.command(epilog="\b\nExamples:\n  rookery boulder pause fix-login\n")
@SESSION
@common
def pause(session: str, as_json: bool, no_start: bool) -> None:
    """Hold boulder back in a session until it is resumed."""
    _ordered("pause", session, as_json, no_start)


@boulder.command(epilog="\b\nExamples:\n  rookery boulder resume fix-login\n")
@SESSION
@common
def resume(session: str, as_json: bool, no_start: bool) -> None:
    """Let boulder go on in a session, after a pause, a stop or failures."""
    _ordered("resume", session, as_json, no_start)


@boulder.command(epilog="\b\nExamples:\n  rookery boulder stop fix-login\n")
@SESSION
@common
def stop(session: str, as_json: bool, no_start: bool) -> None:
    """End boulder in a session.

    It stays switched on, and does nothing until it is resumed or reset. A turn that runs is not ended by this.
    """
    _ordered("stop", session, as_json, no_start)


@boulder.command(epilog="\b\nExamples:\n  rookery boulder reset fix-login\n")
@SESSION
@common
def reset(session: str, as_json: bool, no_start: bool) -> None:
    """Let boulder begin anew in a session, with nothing spent."""
    _ordered("reset", session, as_json, no_start)


@boulder.command(epilog="\b\nExamples:\n  rookery boulder budget fix-login 10\n  rookery boulder budget fix-login\n")
@SESSION
@click.argument("number", required=False, type=click.IntRange(0, 1000))
@common
def budget(session: str, number: int | None, as_json: bool, no_start: bool) -> None:
    """Set how many enforcements a session gets.

    All since the last reset are counted. Without a NUMBER it is the setting boulder.budget again.
    """
    _ordered("budget", session, as_json, no_start, budget=number)


boulder.add_command(log)


def _switched(asked: Boulder, action: str, args: dict[str, Any], as_json: bool) -> None:
    data = asked.act(action, **args)
    if as_json:
        output.answer_json(data)
    else:
        (level, subject), *_ = args.items()
        output.answer(
            f"boulder is {action} for {'the session' if level == 'sessionId' else f'the {level}'} {visible(subject)}"
        )


def _ordered(action: str, session: str, as_json: bool, no_start: bool, **args: Any) -> None:
    asked = Boulder(no_start)
    data = asked.act(action, sessionId=asked.sessions.id_of(session), **args)
    if as_json:
        output.answer_json(data)
    else:
        output.answer(told(json.loads(data)))
