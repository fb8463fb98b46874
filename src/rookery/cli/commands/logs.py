"""`rookery logs`."""

import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, cast

import click

from rookery.cli import output
from rookery.daemon_client.connection import connect, parse_failure
from rookery.daemon_client.failure import Failure
from rookery.daemon_client.start import require_user

_MAX_LOG_BYTES = 2**31
_REQUIRED_KEYS = {"time", "level", "logger", "message"}
LEVELS = ("debug", "info", "warning", "error")

EPILOG = """\b
Examples:
  rookery logs -n 20
  rookery logs -f --level warning
  rookery logs --logger mcp.servers      records about third-party MCP servers
  rookery config set log.level debug     change what is logged; applies at once
"""


@click.command(epilog=EPILOG)
@click.option("-f", "--follow", is_flag=True, help="Show new records as they arrive; needs a running daemon.")
@click.option("--level", type=click.Choice(LEVELS), default="debug", help="Show records of this level and above.")
@click.option("--logger", metavar="NAME", help="Show records of this logger, such as mcp, and of those below it.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(1, 1_000_000),
    default=200,
    show_default=True,
    help="Maximum number of records.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, as in the log file.")
def logs(follow: bool, level: str, logger: str | None, lines: int, as_json: bool) -> None:
    """Show the daemon's log."""
    levels = (*LEVELS[LEVELS.index(level) :], "critical")
    for record in _follow_log(level, logger, lines) if follow else _read_last(lines, levels, logger):
        output.write(json.dumps(record, ensure_ascii=False) if as_json else _format_record(record))


def _read_last(count: int, levels: Iterable[str], logger: str | None) -> Iterable[dict[str, Any]]:
    """Return the last records of these levels and this logger, from the log file and the rotated ones."""
    from rookery.system.fs.atomic import read_plain
    from rookery.system.fs.paths import log_file, state_folder
    from rookery.system.log import is_below

    require_user("the log of the daemon")
    path = log_file(state_folder())
    records: deque[dict[str, Any]] = deque(maxlen=count)
    parts = [part for part in path.parent.glob(f"{path.name}.*") if part.suffix[1:].isdigit()]
    parts.sort(key=lambda part: -int(part.suffix[1:]))
    existing = [part for part in [*parts, path] if part.exists()]
    if not existing:
        raise Failure("log-not-found", f"there is no log yet at {path}", "start the daemon with `rookery up -d`")
    for part in existing:
        # Not `splitlines`: a message may contain other line breaks, and its record would be lost.
        try:
            text = read_plain(part, _MAX_LOG_BYTES).decode("utf-8", "replace")
        except OSError as error:
            output.write_note(f"{part} cannot be read: {error.strerror}")
            continue
        for line in text.split("\n"):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(record, dict) or not record.keys() >= _REQUIRED_KEYS or record["level"] not in levels:
                continue
            if logger is None or is_below(str(record["logger"]), logger):  # pyright: ignore[reportUnknownArgumentType]
                records.append(cast(dict[str, Any], record))
    return records


def _follow_log(level: str, logger: str | None, count: int) -> Iterator[dict[str, Any]]:
    """Yield the last records and then new ones, until the stream ends."""
    from urllib.parse import urlencode

    connection = connect()
    if connection is None:
        raise Failure("daemon-unreachable", "no daemon is running, so there is nothing to follow", "rookery up -d")
    try:
        query = {"level": level, "last": count, **({"logger": logger} if logger is not None else {})}
        status = connection.request("GET", f"/api/logs?{urlencode(query)}")
        if status >= 400:
            raise parse_failure(connection.read(), status)
        kind = ""
        for line in connection.lines():
            if line.startswith(b"event: "):
                kind = line[7:].decode()
            elif line.startswith(b"data: ") and kind == "log":
                yield json.loads(line[6:])
            elif line.startswith(b"data: ") and kind == "end":
                output.write_note(f"the log ended: {json.loads(line[6:])['reason']}")
    except (OSError, ValueError):
        output.write_note("the daemon has stopped")
    finally:
        connection.close()


def _format_record(record: dict[str, Any]) -> str:
    from rookery.system.log import human_line

    line = human_line(record["time"], record["level"], record["logger"], record["message"], record.get("exception"))
    style = {"warning": "yellow", "error": "red", "debug": "dim"}.get(record["level"])
    return output.paint(line, style, sys.stdout) if style else line
