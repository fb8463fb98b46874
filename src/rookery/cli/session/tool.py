"""`rookery session tool` and `history`, and how one run of a tool is told in a line."""

import json
import sys

import click

from rookery.cli import output
from rookery.cli.failure import FAILED
from rookery.cli.mcp_arguments import arguments_of
from rookery.cli.session_names import ANY_SESSION, SESSION, Record, Sessions, common, timeout as timeout_option
from rookery.cli.session_times import clock, lasted
from rookery.cli.visible import visible
from rookery.cli.waiting import waiting

_TOOL = """\b
Examples:
  rookery session tool fix-login read filePath=README.md
  rookery session tool . bash '{"command": "make test", "description": "Runs the tests"}' --timeout 600
  rookery session tool . write - < arguments.json

Values of key=value become numbers, booleans or lists where they look so; JSON says it exactly.
"""
_HEADS = ["BEGAN", "TOOL", "STATUS", "TOOK", "WHAT"]
_STYLES = {"error": "red", "aborted": "yellow", "running": "cyan", "pending": "cyan"}
_LONGEST_INPUT = 200


@click.command(epilog=_TOOL)
@SESSION
@click.argument("name", metavar="TOOL")
@click.argument("arguments", nargs=-1)
@click.option("--wait/--no-wait", default=True, help="Wait for its end, or return at once with the id of the run.")
@timeout_option(120.0)
@common
def tool(
    session: str, name: str, arguments: tuple[str, ...], wait: bool, timeout: float, as_json: bool, no_start: bool
) -> None:
    """Run a tool of the agent, beside the conversation.

    It runs in the session's folder and under its permissions, and the conversation stays as it is. ARGUMENTS are one
    JSON object, - to read one from stdin, or key=value. Exits with 1 if the tool failed.
    """
    given = arguments_of(arguments, {})
    sessions = Sessions(no_start, timeout)
    body = {"tool": name, "args": given, "wait": wait, "timeout": timeout * 1000}
    with waiting(f"{name} runs", silent=as_json):
        data = sessions.ask_of(sessions.id_of(session), "/tools", method="POST", body=body)
    run: Record = json.loads(data)
    if as_json:
        output.answer_json(data)
    elif not wait:
        output.answer(run["id"])
    elif run["output"]:
        output.answer(output.foreign(run["output"]))
    if run["status"] in ("error", "aborted"):
        if not as_json:
            output.narrate(f"rookery: {visible(name)} failed: {visible(run['error'] or run['status'])}")
        sys.exit(FAILED)


@click.command(epilog="\b\nExamples:\n  rookery session history fix-login\n  rookery session history --json -n 100\n")
@ANY_SESSION
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many, the newest.")
@common
def history(session: str | None, limit: int, as_json: bool, no_start: bool) -> None:
    """List the tools that ran.

    In one session, or in all; the newest, in the order they began.
    """
    sessions = Sessions(no_start)
    id_ = sessions.id_or_none(session)
    data = sessions.ask_of(id_ or "tools", "/tools" if id_ else "", limit=str(limit))
    found: list[Record] = json.loads(data)
    if as_json:
        output.answer_json(data)
    elif found:
        styles = [_STYLES.get(one["status"]) for one in found]
        output.answer(output.table([_row(one) for one in found], _HEADS, styles, fit=True))
    else:
        output.narrate("no tool has run yet")


def run_line(run: Record) -> str:
    """One run of a tool, in a line."""
    error = f": {run['error']}" if run["error"] else ""
    return visible(f"{run['tool']} {_what(run)} {run['status']}{error}")


def _row(run: Record) -> list[str]:
    told = [clock(run["start"]), run["tool"], run["status"], lasted(run["start"], run["end"]), _what(run)]
    return [visible(cell) for cell in told]


def _what(run: Record) -> str:
    text = run["title"] or json.dumps(run["input"], ensure_ascii=False)
    return text if len(text) <= _LONGEST_INPUT else f"{text[:_LONGEST_INPUT]} ..."
