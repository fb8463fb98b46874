"""The commands that print tables, each checked on a terminal of 80 columns."""

from collections.abc import Mapping
from pathlib import Path

from rookery.cli import output
from tests.support.cli.user import at_a_terminal

# As long as names of workspaces may well be.
LONG = "a-name-of-thirty-two-characters1"
_COLUMNS = 80
_ERASE = "\x1b[K"

# For each module that lays out a table, the commands that print it, and what must not be lost in each of them.
Tables = Mapping[str, Mapping[tuple[str, ...], list[str]]]
WITHOUT_SESSIONS: Tables = {
    "cli/agent/show.py": {("agent", "list"): ["NAME", "NEEDS YOU"]},
    "cli/guard/audit.py": {("guard", "audit"): ["TIME", "VERDICT"]},
    "cli/guard/group.py": {("guard", "list"): ["new", "a-server-with"]},
    "cli/mcp/check.py": {("mcp", "check"): ["a-server-with", "needs_approval", "reachable"]},
    "cli/mcp/group.py": {
        ("mcp", "list"): ["a-server-with", "needs_approval"],
        ("mcp", "tools"): ["another-server-with", "tokens"],
    },
    "cli/commands/plugin.py": {("plugin", "list"): ["boulder"]},
    "cli/commands/project.py": {("project", "list"): ["application-with-a-name", "another-application"]},
    "cli/commands/status.py": {
        ("status",): ["url", "mcp", "problem: ", "NEEDS YOU", "AGENT", "a-server-with", "missing"]
    },
    "cli/ws/diff.py": {("ws", "diff", LONG, "--stat"): ["+1", "so-it-goes-on.txt"]},
    "cli/ws/list.py": {
        ("ws", "list"): ["NAME", "AGENT", "NEEDS YOU", LONG, "moved-away", "another-application"],
        ("ws", "list", "--attention"): ["moved-away", "missing", "NEEDS YOU"],
    },
    "cli/ws/meta.py": {("ws", "meta", "list", LONG): ["waits for review"]},
    "cli/ws/rm.py": {("ws", "rm", "--merged"): ["merged-and-deleted", "Delete these"]},
    "cli/ws/trash.py": {("ws", "trash"): ["deleted", "ID"]},
    "daemon/commands/config.py": {("config", "show"): ["SETTING", "http.port"]},
    "daemon/doctor/checks.py": {("doctor",): ["python", "git"]},
}
WITH_SESSIONS: Tables = {
    "cli/agent/show.py": {("agent", "show", LONG): ["SESSION", "asking", "needs you"]},
    "cli/commands/boulder.py": {
        ("boulder", "status"): ["SESSION", "STATUS", "HELD BACK BY"],
        ("boulder", "log"): ["WHAT", "SESSION", "WHY"],
    },
    "cli/session/answer.py": {("session", "asks"): ["echo asked", "once, always, reject"]},
    "cli/session/list.py": {("session", "list"): ["ID", "active (asking)"]},
    "cli/session/toasts.py": {("session", "toasts", "--since", "1h"): ["TOAST", "the last of it"]},
    "cli/session/tool.py": {("session", "history"): ["read", "completed"]},
    "cli/ws/list.py": {("ws", "list"): ["NEEDS YOU", "echo asked"]},
}


def show_tables(tables: Tables, cwd: Path, env: Mapping[str, str] | None = None) -> dict[tuple[str, ...], str]:
    """Run the commands on a terminal, check that their output fits and is complete, and return it."""
    shown: dict[tuple[str, ...], str] = {}
    for words, texts in ((words, texts) for commands in tables.values() for words, texts in commands.items()):
        with at_a_terminal(*words, cwd=cwd, env=env, size=(_COLUMNS, 24)) as person:
            if words == ("ws", "rm", "--merged"):
                person.reads("[y/N]")
                person.types("n\n")
            # What is found wrong, and what is not agreed to, is shown all the same.
            assert person.ends() in (0, 1, 130), person.text
        shown[words] = person.text
        # A line that tells what is waited for is erased before the next one.
        lines = [line.rpartition(_ERASE)[2] for line in person.text.splitlines()]
        assert not [line for line in lines if output.measure_width(line) > _COLUMNS], (words, person.text)
        # What wraps may be broken in the middle of a word.
        whole = "".join(person.text.split())
        assert not [text for text in texts if text.replace(" ", "") not in whole], (words, person.text)
    return shown
