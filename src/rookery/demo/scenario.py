"""What happens in a demo: the project, the two tasks, and what the scripted model says and does for each."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.agents.release import PINNED
from rookery.demo.tickets import TICKETS, TOOL
from rookery.testing.snippet import opencode_config

SERVER = "tickets"
# As OpenCode calls the tool of a server.
TICKET_TOOL = f"{SERVER}_{TOOL['name']}"

_HERE = Path(__file__).parent
_GREET = 'def greet(name: str) -> str:\n    return f"Hello, {name}!"\n'
_FIXED = "f\"Hello, {name or 'world'}!\""
_TEST = """import unittest

from {0} import {0}


class Test{1}(unittest.TestCase):
    def test_{0}(self) -> None:
        self.assertEqual({0}("Ada"), "{2}, Ada!")
"""
_FAREWELL = 'def farewell(name: str) -> str:\n    return f"Goodbye, {name}!"\n'

# The project as it is before anybody works on it.
FILES: Mapping[str, str] = {
    "README.md": "# Greeter\n\nIt greets people.\n",
    "greet.py": _GREET,
    "test_greet.py": _TEST.format("greet", "Greet", "Hello"),
    ".gitignore": "__pycache__/\n",
}


@dataclass(frozen=True)
class Task:
    """What one agent is asked, and the steps that the model plays then."""

    workspace: str
    prompt: str
    steps: Sequence[Mapping[str, Any]]

    @property
    def tools(self) -> list[str]:
        """Those that run, in their order."""
        return [step["call"] for step in self.steps if "call" in step]


def _run_tests(said: str) -> dict[str, Any]:
    command = {"command": "python3 -m unittest", "description": "Runs the tests"}
    return {"say": said, "call": "bash", "with": command}


def _read_ticket(number: int) -> dict[str, Any]:
    return {"say": "I read the ticket first.", "call": TICKET_TOOL, "with": {"number": number}}


TASKS = (
    Task(
        "fix-greeting",
        "Do ticket 1.",
        (
            _read_ticket(1),
            {"say": "Let me see the code.", "call": "read", "with": {"filePath": "greet.py"}, "expect": TICKETS[1]},
            {
                "call": "edit",
                "with": {"filePath": "greet.py", "oldString": 'f"Hello, {name}!"', "newString": _FIXED},
                "expect": "def greet",
            },
            _run_tests("Now the tests."),
            {"say": "Ticket 1 is done: without a name, the world is greeted. The tests pass.", "expect": "OK"},
        ),
    ),
    Task(
        "add-farewell",
        "Do ticket 2.",
        (
            _read_ticket(2),
            {
                "say": "A new function, in a file of its own.",
                "call": "write",
                "with": {"filePath": "farewell.py", "content": _FAREWELL},
                "expect": TICKETS[2],
            },
            {
                "call": "write",
                "with": {
                    "filePath": "test_farewell.py",
                    "content": _TEST.format("farewell", "Farewell", "Goodbye"),
                },
            },
            _run_tests("Both tests together."),
            {"say": "Ticket 2 is done: farewell() is there, with a test. All tests pass.", "expect": "OK"},
        ),
    ),
)

_ANYTHING = {
    "when": {"regex": ""},
    "step": [
        {
            "say": 'You said: "{{user}}"\n\nI am the scripted model of the demo, and my script ends here. '
            "In your own repository a real model answers: see `rookery agent login`."
        }
    ],
}


def script() -> dict[str, Any]:
    """The model does the tasks when it is asked to, and says what it is to everything else."""
    turns = [{"when": task.prompt, "step": [dict(step) for step in task.steps]} for task in TASKS]
    return {"turn": [*turns, _ANYTHING]}


def user_files(model_url: str) -> dict[str, str]:
    """The files of the demo's user, by their path in HOME: what `rookery mcp add` and OpenCode would have written."""
    server = {"command": [sys.executable, "-I", str(_HERE / "tickets.py")]}
    # Nobody undoes anything here, and snapshots for that cost more than the rest of a turn.
    opencode = {**opencode_config(model_url), "autoupdate": False, "share": "disabled", "snapshot": False}
    # With these OpenCode takes its plugin package for installed, and needs no network for it.
    package = {"dependencies": {"@opencode-ai/plugin": PINNED}}
    lock = {"name": "demo", "lockfileVersion": 3, "packages": {"": package}}
    return {
        ".config/rookery/mcp.json": json.dumps({"servers": {SERVER: server}}, indent=2),
        ".config/opencode/opencode.json": json.dumps(opencode, indent=2),
        ".config/opencode/plugin/toast.js": (_HERE / "toast.js").read_text(encoding="utf-8"),
        ".config/opencode/node_modules/.package-lock.json": "{}",
        ".config/opencode/package.json": json.dumps(package),
        ".config/opencode/package-lock.json": json.dumps(lock),
    }
