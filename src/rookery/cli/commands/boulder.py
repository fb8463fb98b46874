"""`rookery boulder`.

The commands use the routes that every plugin has.
"""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.groups import SuggestingGroup
from rookery.cli.output import Column, visible
from rookery.cli.session.common import (
    OPTIONAL_SESSION_ARGUMENT,
    SESSION_ARGUMENT,
    JsonObject,
    SessionClient,
    format_time,
    session_options,
)
from rookery.cli.ws.common import complete_workspace

_PLUGIN = "/api/plugins/boulder"

_HEADS = [
    Column("SESSION", output.VITAL, None),
    Column("WORKSPACE", min_width=12),
    Column("STATUS", output.VITAL, 9),
    "SPENT",
    Column("LAST", output.MINOR, 19),
    Column("HELD BACK BY", output.VITAL, 20, wraps=True),
]
_LOG_HEADS = [
    Column("WHEN", min_width=19),
    Column("WHAT", output.VITAL),
    Column("SESSION", output.VITAL, None),
    Column("NUMBER", output.MINOR),
    Column("WHO", output.MINOR),
    Column("WHY", output.VITAL, 20, wraps=True),
]
_STYLES = {"ENFORCING": "green", "EXHAUSTED": "yellow", "STOPPED": "dim", "OFF": "dim", "PAUSED": "dim"}
_ON = """\b
Examples:
  rookery boulder on fix-login                     the session that was used last
  rookery boulder on ses_1a2b --budget 10 --check plan:PLAN.md --check just:test
  rookery boulder on --workspace fix-login         all its sessions
  rookery boulder on --project app
"""
_EPILOG = """\
SESSION is a session id or a workspace name. A workspace name selects the session that was used last in it. A dot is
the workspace of the current folder.

\b
Examples:
  rookery boulder on fix-login
  rookery boulder status
  rookery boulder pause fix-login
  rookery boulder log
"""


class BoulderClient:
    """Client for the plugin's actions and state."""

    def __init__(self, no_start: bool) -> None:
        self.sessions = SessionClient(no_start)

    def run_action(self, action: str, **args: Any) -> bytes:
        """Run an action and return its result as JSON. Arguments that are None are left out."""
        arguments = {key: value for key, value in args.items() if value is not None}
        data = self.sessions.workspaces.request("POST", f"{_PLUGIN}/actions/{action}", {"args": arguments})
        return json.dumps(json.loads(data)["result"], ensure_ascii=False).encode()

    def state(self) -> bytes:
        return self.sessions.workspaces.request("GET", f"{_PLUGIN}/state")

    def subject(self, session: str | None, workspace: str | None, project: str | None) -> JsonObject:
        """Return the argument for a session, a workspace or a project, of which exactly one has to be given."""
        if sum(value is not None for value in (session, workspace, project)) != 1:
            raise click.UsageError("give a session, --workspace or --project")
        if session is not None:
            return {"sessionId": self.sessions.resolve_id(session)}
        if workspace is not None:
            return {"workspace": self.sessions.workspaces.find(None if workspace == "." else workspace)["path"]}
        return {"project": project}


def describe_state(state: JsonObject) -> str:
    """Describe in one line the status of a session, the enforcements spent, and the gates that hold boulder back."""
    line = f"{state['sessionId']} is {state['status']}, {state['iteration']} of {state['budget']} spent"
    gates = "; ".join(gate["reason"] for gate in state["gates"])
    return visible(f"{line}: {gates}" if gates else line)


@click.command(epilog="\b\nExamples:\n  rookery boulder status\n  rookery boulder status fix-login --json\n")
@OPTIONAL_SESSION_ARGUMENT
@session_options
def status(session: str | None, as_json: bool, no_start: bool) -> None:
    """Show the boulder status of a session.

    Without SESSION, this shows all sessions that boulder manages.
    """
    client = BoulderClient(no_start)
    id_ = client.sessions.resolve_optional_id(session)
    data = client.run_action("status", sessionId=id_) if id_ is not None else client.state()
    if as_json:
        output.write_json(data)
        return
    state: JsonObject = json.loads(data)
    if session is not None:
        output.write(describe_state(state))
    elif rows := list(state["sessions"].values()):
        styles = [_STYLES.get(record["status"]) for record in rows]
        short = client.sessions.short_ids(record["sessionId"] for record in rows)
        output.write(output.format_table([_state_row(record, short) for record in rows], _HEADS, styles))
    else:
        output.write_note("boulder manages no session: rookery boulder on")


@click.command(epilog="\b\nExamples:\n  rookery boulder log\n  rookery boulder log fix-login --limit 100 --json\n")
@OPTIONAL_SESSION_ARGUMENT
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Maximum number of entries; the newest are shown.",
)
@session_options
def log(session: str | None, limit: int, as_json: bool, no_start: bool) -> None:
    """Show the actions of boulder, and the requests to it.

    Each entry has the time, the actor and the reason.
    """
    client = BoulderClient(no_start)
    data = client.run_action("log", sessionId=client.sessions.resolve_optional_id(session), limit=limit)
    rows: list[JsonObject] = json.loads(data)
    if as_json:
        output.write_json(data)
    elif rows:
        short = client.sessions.short_ids(record["sessionId"] for record in rows)
        output.write(output.format_table([_log_row(record, short) for record in rows], _LOG_HEADS))
    else:
        output.write_note("no entries yet")


def _state_row(record: JsonObject, short: dict[str, str]) -> list[str]:
    gates = "; ".join(gate["reason"] for gate in record["gates"])
    spent = f"{record['iteration']} of {record['budget']}"
    return [
        short[record["sessionId"]],
        record["workspace"],
        record["status"],
        spent,
        format_time(record["lastEnforcement"]),
        gates,
    ]


def _log_row(record: JsonObject, short: dict[str, str]) -> list[str]:
    return [
        format_time(record["at"]),
        record["what"],
        short[record["sessionId"]],
        str(record["iteration"]),
        record["who"],
        record["why"],
    ]


@click.group(cls=SuggestingGroup, epilog=_EPILOG)
def boulder() -> None:
    """Boulder: keeps sessions going that stopped with work left."""


boulder.add_command(status)


@boulder.command(epilog=_ON)
@OPTIONAL_SESSION_ARGUMENT
@click.option("--workspace", metavar="NAME", shell_complete=complete_workspace, help="For all sessions of a workspace.")
@click.option("--project", metavar="PROJECT", help="For all sessions of a project, by id or name.")
@click.option(
    "--check", "checks", multiple=True, metavar="CHECK", help="todos, plan:FILE or just:TASK; may be repeated."
)
@click.option(
    "--budget", type=click.IntRange(0, 1000), metavar="N", help="The maximum number of enforcements for a session."
)
@session_options
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

    Session settings override workspace settings, and workspace settings override project settings.
    """
    client = BoulderClient(no_start)
    args: dict[str, Any] = client.subject(session, workspace, project)
    if checks:
        args["checks"] = ",".join(checks)
    if budget is not None:
        args["budget"] = budget
    _set_switch(client, "on", args, as_json)


@boulder.command(epilog="\b\nExamples:\n  rookery boulder off fix-login\n  rookery boulder off --workspace fix-login\n")
@OPTIONAL_SESSION_ARGUMENT
@click.option("--workspace", metavar="NAME", shell_complete=complete_workspace, help="For all sessions of a workspace.")
@click.option("--project", metavar="PROJECT", help="For all sessions of a project, by id or name.")
@session_options
def off(session: str | None, workspace: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Switch boulder off for a session, a workspace or a project.

    Its counts are kept.
    """
    client = BoulderClient(no_start)
    _set_switch(client, "off", client.subject(session, workspace, project), as_json)


@boulder.command(epilog="\b\nExamples:\n  rookery boulder pause fix-login\n")
@SESSION_ARGUMENT
@session_options
def pause(session: str, as_json: bool, no_start: bool) -> None:
    """Pause boulder in a session until you resume it."""
    _send_action("pause", session, as_json, no_start)


@boulder.command(epilog="\b\nExamples:\n  rookery boulder resume fix-login\n")
@SESSION_ARGUMENT
@session_options
def resume(session: str, as_json: bool, no_start: bool) -> None:
    """Resume boulder in a session after a pause, a stop or failures."""
    _send_action("resume", session, as_json, no_start)


@boulder.command(epilog="\b\nExamples:\n  rookery boulder stop fix-login\n")
@SESSION_ARGUMENT
@session_options
def stop(session: str, as_json: bool, no_start: bool) -> None:
    """Stop boulder in a session.

    Boulder stays switched on, and does nothing until you resume or reset it. A running turn continues.
    """
    _send_action("stop", session, as_json, no_start)


@boulder.command(epilog="\b\nExamples:\n  rookery boulder reset fix-login\n")
@SESSION_ARGUMENT
@session_options
def reset(session: str, as_json: bool, no_start: bool) -> None:
    """Reset boulder in a session, with none of its budget spent."""
    _send_action("reset", session, as_json, no_start)


@boulder.command(epilog="\b\nExamples:\n  rookery boulder budget fix-login 10\n  rookery boulder budget fix-login\n")
@SESSION_ARGUMENT
@click.argument("number", required=False, type=click.IntRange(0, 1000))
@session_options
def budget(session: str, number: int | None, as_json: bool, no_start: bool) -> None:
    """Set the maximum number of enforcements for a session.

    Enforcements since the last reset count. Without NUMBER, the setting boulder.budget applies again.
    """
    _send_action("budget", session, as_json, no_start, budget=number)


boulder.add_command(log)


def _set_switch(client: BoulderClient, action: str, args: dict[str, Any], as_json: bool) -> None:
    data = client.run_action(action, **args)
    if as_json:
        output.write_json(data)
    else:
        (level, subject), *_ = args.items()
        output.write(
            f"boulder is {action} for {'the session' if level == 'sessionId' else f'the {level}'} {visible(subject)}"
        )


def _send_action(action: str, session: str, as_json: bool, no_start: bool, **args: Any) -> None:
    client = BoulderClient(no_start)
    data = client.run_action(action, sessionId=client.sessions.resolve_id(session), **args)
    if as_json:
        output.write_json(data)
    else:
        output.write(describe_state(json.loads(data)))
