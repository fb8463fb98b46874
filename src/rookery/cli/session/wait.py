"""`rookery session wait`."""

import json
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.output import visible
from rookery.cli.progress import show_progress
from rookery.cli.session.common import (
    SESSIONS_ARGUMENT,
    JsonObject,
    SessionClient,
    session_options,
    since_option,
    timeout_option,
)
from rookery.cli.session.tool import describe_tool_run
from rookery.daemon_client.failure import FAILED, TIMED_OUT

# The longest default time limit of a wait, in seconds.
_LONGEST_DEFAULT = 30.0

_EPILOG = """\b
Examples:
  rookery session wait fix-login --idle --timeout 600
  rookery session wait fix-login --message "all \\d+ tests pass"
  rookery session wait fix-login --toast "(?i)done"
  rookery session wait fix-login --tool bash --pattern "make test"
  rookery session wait fix-login --file report.md
  rookery session wait fix-login --screen "Permission required"
  rookery session wait fix-login fix-search --idle
  rookery session wait fix-login fix-search --any --message "(?i)done"
"""


@click.command(epilog=_EPILOG)
@SESSIONS_ARGUMENT
@click.option("--any", "any_", is_flag=True, help="With several sessions: one that matches is enough.")
@click.option("--message", metavar="PATTERN", help="Wait until a message matches this regular expression.")
@click.option(
    "--toast",
    metavar="PATTERN",
    help="Wait until a toast matches this regular expression; toasts of other sessions do not count.",
)
@click.option("--idle", is_flag=True, help="Wait until no turn runs.")
@click.option("--tool", metavar="TOOL", help="Wait until a run of this tool has ended; * for any.")
@click.option("--file", metavar="PATH", help="Wait until this file exists in the folder of the session.")
@click.option("--screen", metavar="PATTERN", help="Wait until the screen matches this regular expression.")
@click.option("--pattern", metavar="PATTERN", help="With --tool or --file: a regular expression that must match.")
@click.option("--role", type=click.Choice(["user", "assistant"]), help="With --message: only messages of this role.")
@since_option
@timeout_option(None, "Maximum time to wait (30, and 10 for a toast); then the exit code is 124.")
@session_options
def wait(
    sessions: tuple[str, ...], any_: bool, timeout: float | None, as_json: bool, no_start: bool, **options: Any
) -> None:
    """Wait for a message, a toast, idle, a tool, a file or the screen.

    Existing matches count. Prints the match. If the time runs out, this shows what was seen last and exits with
    124. If the session is closed, it exits with 1. Several sessions must all match, and with --any one of them; each
    of them is printed in a line of its own.
    """
    client = SessionClient(no_start, timeout if timeout is not None else _LONGEST_DEFAULT)
    body = _build_condition(options) | ({} if timeout is None else {"timeout": timeout * 1000})
    ids = [client.resolve_id(session) for session in sessions]
    if len(ids) > 1:
        _wait_for_several(client, {**body, "sessions": ids, "mode": "any" if any_ else "all"}, as_json)
        return
    with show_progress("waiting", silent=as_json):
        data = client.request_session(ids[0], "/wait", method="POST", body=body)
    result: JsonObject = json.loads(data)
    if as_json:
        output.write_json(data)
    elif result["found"]:
        output.write(_describe_match(result))
    else:
        output.write_note("rookery: no match" + (f"; last seen: {visible(result['seen'])}" if result["seen"] else ""))
    # The note may only repeat what was seen last.
    if result["note"] and not as_json and not (result["seen"] and result["seen"] in result["note"]):
        output.write_note(visible(result["note"]))
    if not result["found"]:
        sys.exit(FAILED if result["closed"] else TIMED_OUT)


def _wait_for_several(client: SessionClient, body: dict[str, Any], as_json: bool) -> None:
    with show_progress("waiting", silent=as_json):
        data = client.request("POST", "/wait", body)
    outcome: JsonObject = json.loads(data)
    if as_json:
        output.write_json(data)
    for result in outcome["results"] if not as_json else ():
        first, _, more = (_describe_match(result) if result["found"] else result["seen"] or "").partition("\n")
        text = visible(first) + (" …" if more else "")
        output.write(f"{result['sessionId']}  {'matched' if result['found'] else 'no match'}  {text}".rstrip())
    if not outcome["found"]:
        sys.exit(FAILED if any(result["closed"] for result in outcome["results"]) else TIMED_OUT)


def _build_condition(options: dict[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in ("message", "toast", "idle", "tool", "file", "screen") if options[kind]]
    if len(kinds) != 1:
        raise click.UsageError("give one condition to wait for: --message, --toast, --idle, --tool, --file or --screen")
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
