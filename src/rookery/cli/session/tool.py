"""`rookery session tool` and `history`, and the description of one tool run in a line."""

import json
import sys

import click

from rookery.cli import output
from rookery.cli.arguments import parse_arguments
from rookery.cli.output import Column, visible
from rookery.cli.progress import show_progress
from rookery.cli.session.common import (
    OPTIONAL_SESSION_ARGUMENT,
    SESSION_ARGUMENT,
    JsonObject,
    SessionClient,
    format_elapsed,
    format_time,
    session_options,
    timeout_option,
)
from rookery.daemon_client.failure import FAILED

_TOOL = """\b
Examples:
  rookery session tool fix-login read filePath=README.md
  rookery session tool . bash '{"command": "make test", "description": "Runs the tests"}' --timeout 600
  rookery session tool . write - < arguments.json

Values of key=value that look like numbers, booleans or lists are converted. Use JSON to give exact types.
"""
_HEADS = [
    Column("BEGAN", min_width=19),
    Column("TOOL", output.VITAL, 12),
    Column("STATUS", output.VITAL),
    Column("TOOK", output.MINOR),
    Column("WHAT", output.VITAL, 20),
]
_STYLES = {"error": "red", "aborted": "yellow", "running": "cyan", "pending": "cyan"}
_LONGEST_INPUT = 200
# What best describes a run without a title, in this order.
_MAIN_ARGUMENTS = ("command", "filePath", "pattern", "path", "url", "query", "description")


@click.command(epilog=_TOOL)
@SESSION_ARGUMENT
@click.argument("name", metavar="TOOL")
@click.argument("arguments", nargs=-1)
@click.option("--wait/--no-wait", default=True, help="Wait for the end of the run, or return its id at once.")
@timeout_option(120.0)
@session_options
def tool(
    session: str, name: str, arguments: tuple[str, ...], wait: bool, timeout: float, as_json: bool, no_start: bool
) -> None:
    """Run a tool of the agent outside the conversation.

    The tool runs in the session's folder with its permissions, and does not change the conversation. ARGUMENTS are one
    JSON object, - to read one from stdin, or key=value. Exits with 1 if the tool failed.
    """
    parsed = parse_arguments(arguments, {})
    sessions = SessionClient(no_start, timeout)
    body = {"tool": name, "args": parsed, "wait": wait, "timeout": timeout * 1000}
    with show_progress(f"running {name}", silent=as_json):
        data = sessions.request_session(sessions.resolve_id(session), "/tools", method="POST", body=body)
    run: JsonObject = json.loads(data)
    if as_json:
        output.write_json(data)
    elif not wait:
        output.write(run["id"])
    elif run["output"]:
        output.write(output.visible_lines(run["output"]))
    if run["status"] in ("error", "aborted"):
        if not as_json:
            output.write_note(f"rookery: {visible(name)} failed: {visible(run['error'] or run['status'])}")
        sys.exit(FAILED)


@click.command(epilog="\b\nExamples:\n  rookery session history fix-login\n  rookery session history --json -n 100\n")
@OPTIONAL_SESSION_ARGUMENT
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Maximum number of tool runs; the newest are shown.",
)
@session_options
def history(session: str | None, limit: int, as_json: bool, no_start: bool) -> None:
    """List the tools that ran.

    Lists the newest runs of one session or of all, in the order in which they began.
    """
    sessions = SessionClient(no_start)
    id_ = sessions.resolve_optional_id(session)
    data = sessions.request_session(id_ or "tools", "/tools" if id_ else "", limit=str(limit))
    runs: list[JsonObject] = json.loads(data)
    if as_json:
        output.write_json(data)
    elif runs:
        styles = [_STYLES.get(run["status"]) for run in runs]
        output.write(output.format_table([_row(run) for run in runs], _HEADS, styles))
    else:
        output.write_note("no tool has run yet")


def describe_tool_run(run: JsonObject) -> str:
    """Describe one tool run in one line."""
    error = f": {run['error']}" if run["error"] else ""
    return visible(f"{run['tool']} {_describe_input(run)} {run['status']}{error}")


def _row(run: JsonObject) -> list[str]:
    return [
        format_time(run["start"]),
        run["tool"],
        run["status"],
        format_elapsed(run["start"], run["end"]),
        _describe_input(run),
    ]


def _describe_input(run: JsonObject) -> str:
    # OpenCode gives a run its title when it ends.
    arguments: JsonObject = run["input"]
    main = next((arguments[name] for name in _MAIN_ARGUMENTS if isinstance(arguments.get(name), str)), "")
    text = run["title"] or main or json.dumps(arguments, ensure_ascii=False)
    return text if len(text) <= _LONGEST_INPUT else f"{text[:_LONGEST_INPUT]} ..."
