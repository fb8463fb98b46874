"""`rookery session wait`."""

import json
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.failure import FAILED, TIMED_OUT
from rookery.cli.session_names import SESSION, Record, Sessions, common, timeout as timeout_option
from rookery.cli.session_times import since as since_option
from rookery.cli.session_tool import run_line
from rookery.cli.visible import visible
from rookery.cli.waiting import waiting

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
@SESSION
@click.option("--message", metavar="PATTERN", help="Until a message fits this regular expression.")
@click.option("--toast", metavar="PATTERN", help="Until a toast of its workspace fits this regular expression.")
@click.option("--idle", is_flag=True, help="Until no turn runs.")
@click.option("--tool", metavar="TOOL", help="Until a run of this tool has ended; * for any.")
@click.option("--file", metavar="PATH", help="Until this file of its folder is there.")
@click.option("--screen", metavar="PATTERN", help="Until what stands on its terminal fits this regular expression.")
@click.option("--pattern", metavar="PATTERN", help="With --tool or --file: what has to be in it.")
@click.option("--role", type=click.Choice(["user", "assistant"]), help="With --message: only messages of this one.")
@since_option
@timeout_option(30.0)
@common
def wait(session: str, timeout: float, as_json: bool, no_start: bool, **given: Any) -> None:
    """Wait for a message, a toast, idle, a tool, a file or the screen.

    What is there already counts. Prints what was found; exits with 124 if time runs out, and tells what was seen last,
    and with 1 if the session is closed meanwhile.
    """
    sessions = Sessions(no_start, timeout)
    body = {**_asked(given), "timeout": timeout * 1000}
    with waiting("waiting", silent=as_json):
        data = sessions.ask_of(sessions.id_of(session), "/wait", method="POST", body=body)
    told: Record = json.loads(data)
    if as_json:
        output.answer_json(data)
    elif told["found"]:
        output.answer(_found(told))
    else:
        output.narrate("rookery: it did not come" + (f"; seen last: {visible(told['seen'])}" if told["seen"] else ""))
    # It may only say again what was seen last.
    if told["note"] and not as_json and not (told["seen"] and told["seen"] in told["note"]):
        output.narrate(visible(told["note"]))
    if not told["found"]:
        sys.exit(FAILED if told["closed"] else TIMED_OUT)


def _asked(given: dict[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in ("message", "toast", "idle", "tool", "file", "screen") if given[kind]]
    if len(kinds) != 1:
        raise click.UsageError("say what to wait for: one of --message, --toast, --idle, --tool, --file and --screen")
    (kind,) = kinds
    asked = {"for": kind, "pattern": given["pattern"], "role": given["role"], "since": given["since"]}
    if kind in ("message", "toast", "screen"):
        asked["pattern"] = given[kind]
    elif kind == "tool" and given[kind] != "*":
        asked["tool"] = given[kind]
    elif kind == "file":
        asked["path"] = given[kind]
    return {key: value for key, value in asked.items() if value is not None}


def _found(told: Record) -> str:
    if told["message"] is not None:
        return output.foreign(told["message"]["content"])
    if told["toast"] is not None:
        return output.foreign(told["toast"]["message"])
    if told["tool"] is not None:
        return run_line(told["tool"])
    if told["screen"] is not None:
        return output.foreign(told["match"])
    return visible(told["file"] or f"{told['sessionId']} is idle")
