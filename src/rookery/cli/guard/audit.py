"""`rookery guard audit`, and the history of approvals."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

import click

from rookery.cli import output
from rookery.cli.options import json_option, no_start_option
from rookery.cli.output import Column, visible
from rookery.daemon_client import connection
from rookery.daemon_client.failure import FAILED, Failure

_PAGE = 2000
# How long the daemon waits for the next record, before it is asked again.
_WAIT_SECONDS = 60
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_FIELDS = (
    *("id", "time", "event", "verdict", "outcome", "principal", "workspace", "session", "server", "tool", "ms"),
    *("arguments_bytes", "result_bytes", "arguments_hash", "detail"),
)
_HEADS = [
    Column("TIME", output.VITAL),
    Column("EVENT", output.VITAL),
    Column("VERDICT", output.VITAL),
    Column("WHO", output.MINOR, 8),
    Column("WORKSPACE", min_width=10),
    Column("SERVER", output.VITAL, 8),
    Column("TOOL OR SUBJECT", output.VITAL, 12),
    Column("MS", output.MINOR),
]
_HISTORY_HEADS = [
    Column("TIME", output.VITAL),
    Column("VERDICT", output.VITAL),
    Column("NAME", output.VITAL, 12),
    "KIND",
    Column("PROJECT", min_width=12),
    Column("WHO", output.VITAL, 12),
    Column("CONTENT", output.VITAL),
]
_WHO = {
    "terminal": "you, at a terminal",
    "adding": "by adding the project",
    "removing": "by removing the project",
    "person": "you, with a command",
    "damage": "the approvals were damaged",
}
_EPILOG = """\b
Examples:
  rookery guard audit                                 the last 50 records
  rookery guard audit --since 2h --verdict denied
  rookery guard audit --server github --tool "delete_*" --since 2026-11-01
  rookery guard audit --workspace fix-login --follow
  rookery guard audit --since 7d --export calls.csv --csv
  rookery guard audit --verify
"""


@click.command(epilog=_EPILOG)
@click.option("--since", metavar="TIME", help="From this time on: an age (30m, 2h, 7d) or a date (2026-11-01T09:00).")
@click.option("--until", metavar="TIME", help="Up to this time, written in the same way.")
@click.option("--workspace", metavar="NAME", help="Only this workspace, by its path or the end of its path.")
@click.option("--server", metavar="NAME", help="Only this server; * and ? are wildcards.")
@click.option("--tool", metavar="NAME", help="Only this tool, also as server/tool; * and ? are wildcards.")
@click.option(
    "--verdict", metavar="VERDICT", help="Only this verdict or outcome: allowed, denied, approved, timed-out."
)
@click.option("--event", metavar="EVENT", help="Only these events, separated by commas: call, ask, approval, setting.")
@click.option(
    "-n", "--lines", type=click.IntRange(1, 1_000_000), help="Maximum number of records: the newest (50 by default)."
)
@click.option("--all", "everything", is_flag=True, help="All records that match, not only the newest.")
@click.option("-f", "--follow", is_flag=True, help="Continue with new records as they are written.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--export", type=click.Path(), metavar="FILE", help="Write all that match to FILE: JSON lines, or CSV.")
@click.option("--verify", is_flag=True, help="Check that no record was changed or removed; exit with 1 if one was.")
@json_option
@no_start_option
def audit(
    lines: int | None,
    everything: bool,
    follow: bool,
    as_csv: bool,
    export: str | None,
    verify: bool,
    as_json: bool,
    no_start: bool,
    **filters: str | None,
) -> None:
    """Show who called which tool when, and with what verdict.

    Approvals, sign-ins and changes of settings are listed too. Neither arguments nor results are recorded. --json
    prints one record per line.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other")
    if verify:
        _verify(as_json, start=not no_start)
        return
    if export is not None and (follow or lines is not None):
        raise click.UsageError("--export writes all records that match, without --follow and --lines")
    query = {key: value for key, value in filters.items() if value is not None}
    for key in ("since", "until"):
        if key in query:
            query[key] = str(parse_time(query[key]))
    reader = _Reader(query, start=not no_start)
    if export is not None:
        _export(reader, export, as_csv=as_csv)
        return
    records = reader.read_all() if everything else reader.read_newest(lines or 50)
    if not follow:
        _write(records, sys.stdout, as_json=as_json, as_csv=as_csv)
        return
    print_record = _choose_printer(as_json=as_json, as_csv=as_csv)
    for record in records:
        print_record(record)
    for record in reader.follow():
        print_record(record)


def write_history(*, as_json: bool, start: bool) -> None:
    """Print who approved, blocked or revoked what, when, and by which content."""
    records = list(_Reader({"event": "approval,withheld"}, start=start).read_all())
    if as_json:
        output.write(json.dumps(records))
        return
    rows = [
        [
            _format_time(record["time"]),
            record["verdict"],
            visible(record["detail"].get("name") or record["tool"] or ""),
            record["detail"].get("kind", ""),
            visible(record["detail"].get("place") or record["workspace"] or ""),
            visible(describe_decider(record)),
            record["detail"].get("digest", "")[:12],
        ]
        for record in records
    ]
    output.write(output.format_table(rows, _HISTORY_HEADS) or "nothing was approved, blocked or revoked yet")


def describe_decider(record: dict[str, Any]) -> str:
    """Return who made a decision, and how."""
    by = record["detail"].get("by", "")
    if by == "digest":
        return f"by digest, {record['detail'].get('source', '')}"
    return _WHO.get(by, f"{record['principal']}{f', {by}' if by else ''}")


def parse_time(text: str) -> float:
    """Return a time in seconds since 1970, given as an age or as a date."""
    import re
    from datetime import datetime

    from rookery.system.clock import SYSTEM_CLOCK

    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip()):
        return max(0.0, SYSTEM_CLOCK.wall() - float(match[1]) * _UNITS[match[2]])
    try:
        return max(0.0, datetime.fromisoformat(text.strip()).timestamp())
    except (ValueError, OverflowError, OSError):
        remedy = "use an age such as 30m, 2h or 7d, or a date such as 2026-11-01 or 2026-11-01T09:00"
        raise Failure("invalid-input", f"{text!r} is not a time", remedy) from None


class _Reader:
    """Reads the records that match, page by page."""

    def __init__(self, query: dict[str, str], *, start: bool) -> None:
        self._query = query
        self._start = start
        self._last = 0

    def read_newest(self, count: int) -> list[dict[str, Any]]:
        pages: list[list[dict[str, Any]]] = []
        before: int | None = None
        remaining = count
        while remaining > 0:
            page = self._fetch(limit=min(remaining, _PAGE), before=before)
            records: list[dict[str, Any]] = page["records"]
            pages.append(records)
            remaining -= len(records)
            if not records or not page["more"]:
                break
            before = records[0]["id"]
        newest = [record for records in reversed(pages) for record in records]
        self._last = newest[-1]["id"] if newest else self._fetch_last_id()
        return newest

    def read_all(self) -> Iterator[dict[str, Any]]:
        more = True
        while more:
            page = self._fetch(limit=_PAGE, after=self._last)
            yield from page["records"]
            self._last = page["last"]
            more = page["more"]

    def follow(self) -> Iterator[dict[str, Any]]:
        while True:
            page = self._fetch(limit=_PAGE, after=self._last, wait=_WAIT_SECONDS)
            yield from page["records"]
            self._last = page["last"]

    def _fetch_last_id(self) -> int:
        """Return the id of the newest record of all, when none has matched."""
        page = json.loads(connection.call("GET", "/api/audit?limit=1", start=self._start))
        return page["records"][-1]["id"] if page["records"] else 0

    def _fetch(self, **more: int | None) -> dict[str, Any]:
        from urllib.parse import urlencode

        query = {**self._query, **{key: value for key, value in more.items() if value is not None}}
        return json.loads(connection.call("GET", f"/api/audit?{urlencode(query)}", start=self._start))


def _write(records: Iterable[dict[str, Any]], stream: TextIO, *, as_json: bool, as_csv: bool) -> None:
    if as_json or as_csv:
        print_record = _choose_printer(as_json=as_json, as_csv=as_csv, stream=stream)
        for record in records:
            print_record(record)
        return
    rows = [_make_row(record) for record in records]
    output.write(output.format_table(rows, _HEADS) or "no record matches")


def _choose_printer(*, as_json: bool, as_csv: bool, stream: TextIO | None = None) -> Callable[[dict[str, Any]], None]:
    """Return what prints one record at once."""
    out = stream if stream is not None else sys.stdout
    if as_csv:
        import csv

        writer = csv.writer(out)
        writer.writerow(_FIELDS)

        def write_csv(record: dict[str, Any]) -> None:
            writer.writerow([_make_cell(key, record[key]) for key in _FIELDS])
            out.flush()

        return write_csv

    def write_line(record: dict[str, Any]) -> None:
        text = json.dumps(record, ensure_ascii=False) if as_json else "  ".join(filter(None, _make_row(record)))
        if out is sys.stdout:
            output.write(text)
        else:
            out.write(f"{text}\n")

    return write_line


def _make_cell(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key == "time":
        from rookery.system.clock import iso

        return iso(value)
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
    # A spreadsheet would run it as a formula, and servers and clients choose some of these texts.
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _make_row(record: dict[str, Any]) -> list[str]:
    detail: dict[str, str] = record["detail"]
    subject = record["tool"] or detail.get("key") or detail.get("operation") or detail.get("name") or ""
    outcome = record["outcome"]
    verdict = record["verdict"] if outcome in ("", "answered") else f"{record['verdict']} ({outcome})"
    return [
        _format_time(record["time"]),
        record["event"],
        visible(verdict),
        visible(record["principal"].partition(" ")[0]),
        visible((record["workspace"] or "").rpartition("/")[2]),
        visible(record["server"] or ""),
        visible(subject),
        "" if record["ms"] is None else f"{record['ms']:.0f}",
    ]


def _format_time(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _export(reader: _Reader, path: str, *, as_csv: bool) -> None:
    from pathlib import Path

    from rookery.cli.progress import show_progress

    count = 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal count
        for record in reader.read_all():
            count += 1
            yield record

    try:
        with show_progress("exporting"), Path(path).open("w", encoding="utf-8", newline="") as file:
            _write(counted(), file, as_json=not as_csv, as_csv=as_csv)
    except OSError as error:
        raise Failure("invalid-input", f"{path} cannot be written: {error.strerror}", "name another file") from None
    output.write_note(f"{count} records in {path}")


def _verify(as_json: bool, *, start: bool) -> None:
    data = connection.call("GET", "/api/audit/verification", start=start)
    result = json.loads(data)
    if as_json:
        output.write_json(data)
    else:
        removed = f"; {result['removed']} older ones were removed by the limits" if result["removed"] else ""
        state = "intact" if result["intact"] else "NOT intact"
        output.write(f"the audit is {state}: {result['records']} records{removed}")
        for fault in result["faults"]:
            place = f"{fault['series']}, from record {fault['first']} to {fault['last']}"
            output.write(f"  {place}: {fault['message']}")
    if not result["intact"]:
        sys.exit(FAILED)
