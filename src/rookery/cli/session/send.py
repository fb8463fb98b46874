"""`rookery session send`."""

import contextlib
import json
import sys
from collections.abc import Iterator

import click

from rookery.cli import output
from rookery.cli.output import visible
from rookery.cli.progress import show_progress
from rookery.cli.session.common import (
    SESSION_ARGUMENT,
    JsonObject,
    SessionClient,
    describe_ask,
    session_options,
    timeout_option,
)
from rookery.cli.session.tool import describe_tool_run
from rookery.daemon_client.failure import FAILED, TIMED_OUT, Failure

_EPILOG = """\b
Examples:
  rookery session send fix-login "Run the tests, and fix what fails." --timeout 600
  git diff | rookery session send fix-login -
  rookery session send fix-login "Go on." --no-wait
"""
# How long to wait: for a program, and for a person, who sees the progress and can stop with Ctrl-C.
_SECONDS = 30.0
_TERMINAL_SECONDS = 86_400.0
# The exit code of shells for a command that SIGINT ended.
_INTERRUPTED = 130


@click.command(epilog=_EPILOG)
@SESSION_ARGUMENT
@click.argument("text")
@click.option(
    "--wait/--no-wait", default=True, help="Wait for the end of the turn, or return when the agent has the message."
)
@click.option("--agent", metavar="AGENT", help="The agent for this turn.")
@click.option("--model", metavar="MODEL", help="The model for this turn, as provider/model.")
@timeout_option(None, f"Maximum time to wait; then the exit code is {TIMED_OUT}. [default: 30; a day on a terminal]")
@session_options
def send(
    session: str,
    text: str,
    wait: bool,
    agent: str | None,
    model: str | None,
    timeout: float | None,
    as_json: bool,
    no_start: bool,
) -> None:
    """Send a message, and wait for the reply.

    TEXT is the message, or - to read it from stdin. Prints the reply to stdout and the tool runs to
    stderr, in order: on a terminal as they happen, elsewhere at the end. Exits with 1 if the turn failed, and with 124
    if it still runs after the time limit. Ctrl-C stops watching; the turn continues.
    """
    content = sys.stdin.read() if text == "-" else text
    streamed = wait and not as_json and sys.stdout.isatty()
    seconds = choose_timeout(timeout, streamed=streamed)
    sessions = SessionClient(no_start, seconds)
    options = {"content": content, "wait": wait, "timeout": seconds * 1000, "agent": agent, "model": model}
    body = {key: value for key, value in options.items() if value is not None}
    id_ = sessions.resolve_id(session)
    turn_output = _TurnOutput()
    try:
        if streamed:
            data = _follow_turn(sessions, id_, {**body, "stream": True}, turn_output)
        else:
            with show_progress("the turn is running" if wait else "sending the message to the agent", silent=as_json):
                data = sessions.request_session(id_, "/messages", method="POST", body=body)
    except KeyboardInterrupt:
        turn_output.end_line()
        output.write_note(_describe_interruption(id_, accepted=turn_output.accepted or not streamed))
        sys.exit(_INTERRUPTED)
    turn: JsonObject = json.loads(data)
    if as_json:
        output.write_json(data)
    elif streamed:
        turn_output.end_line()
        _write_outcome(turn, asks=False)
    else:
        _write_turn(turn)
    if turn["status"] in ("error", "timeout"):
        sys.exit(FAILED if turn["status"] == "error" else TIMED_OUT)


def choose_timeout(seconds: float | None, *, streamed: bool) -> float:
    """Return how many seconds to wait for the end of a turn."""
    return seconds or (_TERMINAL_SECONDS if streamed else _SECONDS)


def _describe_interruption(id_: str, *, accepted: bool) -> str:
    if not accepted:
        return f"stopped before the agent accepted the message; check whether it did: rookery session messages {id_}"
    return (
        f"the turn continues; stop it: rookery session abort {id_}\n"
        f"wait for its end: rookery session wait {id_} --idle; read it: rookery session messages {id_}"
    )


class _TurnOutput:
    """Writes a turn to the terminal as it runs: text to stdout, and tool runs and asks as separate lines to stderr."""

    def __init__(self) -> None:
        self.accepted = False
        self.in_line = False

    def write_text(self, text: str) -> None:
        text = text if self.in_line else text.lstrip("\n")
        if text:
            output.write_part(output.visible_lines(text))
            self.in_line = not text.endswith("\n")

    def write_line(self, text: str) -> None:
        self.end_line()
        output.write_note(text)
        sys.stderr.flush()

    def end_line(self) -> None:
        if self.in_line:
            output.write_part("\n")
        self.in_line = False


def _follow_turn(sessions: SessionClient, id_: str, body: JsonObject, turn_output: _TurnOutput) -> bytes:
    """Show a turn while it runs, and return the daemon's record of the finished turn."""
    message = ""
    events = sessions.stream_session(id_, "/messages", body)
    while True:
        # A model may take long for its first word, and a tool for its end.
        with contextlib.nullcontext() if turn_output.in_line else show_progress("the turn is running"):
            kind, data = next(events, ("", b""))
        if kind == "turn":
            return data
        if not kind:
            raise Failure("daemon-unreachable", "the daemon closed the connection", "see `rookery logs`")
        event: JsonObject = json.loads(data)
        turn_output.accepted = True
        if kind == "text":
            if event["messageId"] != message:
                turn_output.end_line()
            message = event["messageId"]
            turn_output.write_text(event["text"])
        elif kind == "tool":
            turn_output.write_line(output.paint(describe_tool_run(event["tool"]), "dim", sys.stderr))
        elif kind == "ask":
            turn_output.write_line(describe_ask(event["ask"]))


def _write_turn(turn: JsonObject) -> None:
    for piece in list_pieces(turn):
        if isinstance(piece, str):
            output.write_part(output.visible_lines(piece))
        else:
            output.write_note(describe_tool_run(piece))
            # stdout and stderr may be the same terminal or file, and the order has to stay.
            sys.stderr.flush()
    _write_outcome(turn, asks=True)


def list_pieces(turn: JsonObject) -> Iterator[str | JsonObject]:
    """Yield the text of a turn in pieces, with each tool run after the text that preceded it.

    The pieces together are the text with a line break at its end. A line break belongs to the piece before it, so that
    no tool run is in the middle of a line.
    """
    text: str = turn["content"]
    text += "\n" if text and not text.endswith("\n") else ""
    position = begin = 0
    for message in turn["messages"]:
        for run in message["parts"]:
            until = max(position, begin + (run["offset"] or 0))
            if until > position and not text.endswith("\n", 0, until) and text.startswith("\n", until):
                until += 1
            if until > position:
                yield text[position:until]
            position = until
            yield run
        begin += len(message["content"]) + bool(message["content"])
    if text[position:]:
        yield text[position:]


def _write_outcome(turn: JsonObject, *, asks: bool) -> None:
    if turn["status"] == "taken":
        output.write_note(f"{turn['sessionId']} has the message")
    if turn["status"] == "timeout":
        output.write_note("the turn continues; wait for its end: rookery session wait " + f"{turn['sessionId']} --idle")
    if turn["error"]:
        output.write_note(f"rookery: the turn failed: {visible(turn['error'])}")
    if turn["note"]:
        output.write_note(visible(turn["note"]))
    for ask in turn["asks"] if asks else ():
        output.write_note(describe_ask(ask))
