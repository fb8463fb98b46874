"""`rookery logs` shows every record, and nothing that only looks like a record."""

import json
import re
import subprocess
from pathlib import Path

from tests.support.daemon.foreground import wait_for_line
from tests.support.daemon.process import ROOKERY, Daemon, rookery

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


def test_only_the_records_of_one_logger_and_of_those_below_it_are_shown(daemon: Daemon) -> None:
    file = daemon.state / "logs" / "daemon.jsonl"
    names = ["rookery.mcp.servers", "rookery.mcp.serversx", "rookery.agents"]
    records = [{"time": "2026-01-01T10:11:12Z", "level": "info", "logger": name, "message": name} for name in names]
    with file.open("a", encoding="utf-8") as log:
        log.writelines(json.dumps(record) + "\n" for record in records)
    for name in ("mcp.servers", "rookery.mcp.servers", "mcp.servers"):
        shown = [json.loads(line)["logger"] for line in rookery("logs", "--logger", name, "--json").stdout.splitlines()]
        assert shown == ["rookery.mcp.servers"]
    below = [json.loads(line)["logger"] for line in rookery("logs", "--logger", "mcp", "--json").stdout.splitlines()]
    assert below == names[:2]
    # A running daemon is asked with -f, and filters what it sends.
    follow = [str(ROOKERY), "logs", "-f", "--json", "--logger", "daemon"]
    with subprocess.Popen(follow, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = wait_for_line(process.stdout.fileno(), b"\n").splitlines()[0]
        process.terminate()
    assert json.loads(line)["logger"] == "rookery.daemon"


def test_the_table_of_loggers_in_the_guide_names_every_logger() -> None:
    source = Path(__file__).parents[3] / "src" / "rookery"
    names = {
        name
        for module in source.rglob("*.py")
        for name in re.findall(r'getLogger\("rookery\.([a-z._]+)"\)', module.read_text(encoding="utf-8"))
    }
    guide = (source.parents[1] / "docs" / "guide" / "troubleshooting.md").read_text(encoding="utf-8")
    table = guide.partition("## Loggers")[2]
    assert set(re.findall(r"^\| `([a-z._]+)`", table, re.MULTILINE)) == names
