"""`rookery logs`."""

import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import click

from rookery.cli import link, output
from rookery.cli.failure import Failure

LEVELS = ("debug", "info", "warning", "error")

EPILOG = """\b
Examples:
  rookery logs -n 20
  rookery logs -f --level warning
  rookery config set log.level debug     what is logged at all, taken over by a running daemon
"""


@click.command(epilog=EPILOG)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes; needs a running daemon.")
@click.option("--level", type=click.Choice(LEVELS), default="debug", help="Show records of this level and above.")
@click.option(
    "-n", "--lines", type=click.IntRange(1, 1_000_000), default=200, show_default=True, help="How many at most."
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines, as in the log file.")
def logs(follow: bool, level: str, lines: int, as_json: bool) -> None:
    """Show the daemon's log."""
    wanted = (*LEVELS[LEVELS.index(level) :], "critical")
    for record in _followed(level, lines) if follow else _last(lines, wanted):
        output.answer(json.dumps(record, ensure_ascii=False) if as_json else _human(record))


def _last(count: int, wanted: Iterable[str]) -> Iterable[dict[str, Any]]:
    from rookery.system.places import log_file, state_folder

    path = log_file(state_folder())
    found: deque[dict[str, Any]] = deque(maxlen=count)
    parts = [part for part in path.parent.glob(f"{path.name}.*") if part.suffix[1:].isdigit()]
    parts.sort(key=lambda part: -int(part.suffix[1:]))
    existing = [part for part in [*parts, path] if part.exists()]
    if not existing:
        raise Failure("log-not-found", f"there is no log yet at {path}", "start the daemon with `rookery up -d`")
    for part in existing:
        # Not `splitlines`: a message may have other line breaks in it, and would be lost.
        for line in part.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if record.get("level") in wanted:
                found.append(record)
    return found


def _followed(level: str, count: int) -> Iterator[dict[str, Any]]:
    connected = link.connect()
    if connected is None:
        raise Failure("daemon-unreachable", "no daemon is running, so there is nothing to follow", "rookery up -d")
    try:
        status = connected.request("GET", f"/api/logs?level={level}&last={count}")
        if status >= 400:
            raise link.failure_of(connected.read(), status)
        kind = ""
        for line in connected.lines():
            if line.startswith(b"event: "):
                kind = line[7:].decode()
            elif line.startswith(b"data: ") and kind == "log":
                yield json.loads(line[6:])
            elif line.startswith(b"data: ") and kind == "end":
                output.narrate(f"the log ended: {json.loads(line[6:])['reason']}")
    except (OSError, ValueError):
        output.narrate("the daemon has gone")
    finally:
        connected.close()


def _human(record: dict[str, Any]) -> str:
    from rookery.system.log import human_line

    line = human_line(record["time"], record["level"], record["logger"], record["message"], record.get("exception"))
    style = {"warning": "yellow", "error": "red", "debug": "dim"}.get(record["level"])
    return output.paint(line, style, sys.stdout) if style else line
