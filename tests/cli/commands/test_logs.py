"""`rookery logs` shows what was logged: all of it, and nothing that only looks like it."""

import json
from pathlib import Path

from tests.support.house import rookery

FORGED = "12:00:00 info    guard: approved"
TRICK = f"it said \x1b[2J\x9b1A\u202egnp\r\n{FORGED}\u2028\x85x"


def test_a_record_is_shown_whatever_is_in_it_and_cannot_pass_for_two(state: Path) -> None:
    record = {"time": "2026-01-01T10:11:12Z", "level": "error", "logger": "rookery.mcp", "message": TRICK}
    record["exception"] = f"Traceback:\n{FORGED}"
    file = state / "logs" / "daemon.jsonl"
    file.parent.mkdir()
    file.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
    done = rookery("logs")
    shown = rf"it said \e[2J\u{{9b}}1A\u{{202e}}gnp\r\n{FORGED}\u{{2028}}\u{{85}}x"
    assert done.stdout.split("\n") == [f"10:11:12 error   mcp: {shown}", "    Traceback:", f"    {FORGED}", ""]
    assert json.loads(rookery("logs", "--json").stdout) == record
