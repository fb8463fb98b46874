"""`rookery session wait`."""

import json
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.failure import FAILED, TIMED_OUT
from rookery.cli.output import visible
from rookery.cli.progress import show_progress
from rookery.cli.session.common import (
    SESSION_ARGUMENT,
    JsonObject,
    SessionClient,
    session_options,
    since_option,
    timeout_option,
)
from rookery.cli.session.tool import describe_tool_run

_EPILOG = """\b
Examples:
  rookery session wait fix-login --idle --timeout 600
  rookery session wait fix-login --message "all \\d+ tests pass"
  rookery session wait fix-login --toast "(?i)done"
  rookery session wait fix-login --tool bash --pattern "make test"
  rookery session wait fix-login --file report.md
  rookery session wait fix-login --screen "Permission required"
"""


@click.command(epilog=_EPILOG)
@SESSION_ARGUMENT
@click.option("--message", metavar="PATTERN", help="Wait until a message matches this regular expression.")
@click.option(
    "--toast",
    metavar="PATTERN",
    help="Wait until a toast matches this regular expression; toasts of other sessions do not count.",
)
@click.option("--idle", is_flag=True, help="Wait until no turn runs.")
@click.option("--tool", metavar="TOOL", help="Wait until a run of this tool has ended; * for any.")
@click.option("--file", metavar="PATH", help="Wait until this file exists in its folder.")
@click.option("--screen", metavar="PATTERN", help="Wait until its screen matches this regular expression.")
@click.option("--pattern", metavar="PATTERN", help="With --tool or --file: what has to be in it.")
@click.option("--role", type=click.Choice(["user", "assistant"]), help="With --message: only messages of this one.")
@since_option
@timeout_option(30.0)
@session_options
def wait(session: str, timeout: float, as_json: bool, no_start: bool, **options: Any) -> None:
    """Wait for a message, a toast, idle, a tool, a file or the screen.

    Existing matches count. Prints the match. Exits with 124 and shows what was seen last if the time runs out, and with
    1 if the session is closed.
    """
    sessions = SessionClient(no_start, timeout)
    body = {**_build_condition(options), "timeout": timeout * 1000}
    with show_progress("waiting", silent=as_json):
        data = sessions.request_session(sessions.resolve_id(session), "/wait", method="POST", body=body)
    result: JsonObject = json.loads(data)
    if as_json:
        output.write_json(data)
    elif result["found"]:
        output.write(_describe_match(result))
    else:
        output.write_note(
            "rookery: it did not come" + (f"; seen last: {visible(result['seen'])}" if result["seen"] else "")
        )
    # The note may only repeat what was seen last.
    if result["note"] and not as_json and not (result["seen"] and result["seen"] in result["note"]):
        output.write_note(visible(result["note"]))
    if not result["found"]:
        sys.exit(FAILED if result["closed"] else TIMED_OUT)


def _build_condition(options: dict[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in ("message", "toast", "idle", "tool", "file", "screen") if options[kind]]
    if len(kinds) != 1:
        raise click.UsageError("say what to wait for: one of --message, --toast, --idle, --tool, --file and --screen")
    (kind,) = kinds
    condition = {"for": kind, "pattern": options["pattern"], "role": options["role"], "since": options["since"]}
    if kind in ("message", "toast", "screen"):
        condition["pattern"] = options[kind]
    elif kind == "tool" and options[kind] != "*":
        condition["tool"] = options[kind]
    elif kind == "file":
        condition["path"] = options[kind]
    return {key: value for key, value in condition.items() if value is not None}


def _describe_match(result: JsonObject) -> str:
    if result["message"] is not None:
        return output.visible_lines(result["message"]["content"])
    if result["toast"] is not None:
        return output.visible_lines(result["toast"]["message"])
    if result["tool"] is not None:
        return describe_tool_run(result["tool"])
    if result["screen"] is not None:
        return output.visible_lines(result["match"])
    return visible(result["file"] or f"{result['sessionId']} is idle")
