"""The scenario of the demo: the project, the two tasks, and the script that the model plays for each."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.agents.opencode.release import PINNED_VERSION
from rookery.demo.tickets import TICKETS, TOOL
from rookery.testing.model import opencode_config

SERVER = "tickets"
# OpenCode's name for the tool of a server.
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

# The files of the project before the agents work on it.
FILES: Mapping[str, str] = {
    "README.md": "# Greeter\n\nIt greets people.\n",
    "greet.py": _GREET,
    "test_greet.py": _TEST.format("greet", "Greet", "Hello"),
    ".gitignore": "__pycache__/\n",
}

_FALLBACK_TURN = {
    "when": {"regex": ""},
    "step": [
        {
            "say": 'You said: "{{user}}"\n\nI am the scripted model of the demo, and my script ends here. '
            "In your own repository a real model answers: see `rookery agent login`."
        }
    ],
}


@dataclass(frozen=True)
class Task:
    """The prompt for one agent, and the steps that the model plays for it."""

    workspace: str
    prompt: str
    steps: Sequence[Mapping[str, Any]]

    @property
    def tools(self) -> list[str]:
        """Return the tools that run, in order."""
        return [step["call"] for step in self.steps if "call" in step]


def _run_tests(text: str) -> dict[str, Any]:
    command = {"command": "python3 -m unittest", "description": "Runs the tests"}
    return {"say": text, "call": "bash", "with": command}


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


def build_script() -> dict[str, Any]:
    """Return the model's script: it does the tasks for their prompts, and explains itself for any other prompt."""
    turns = [{"when": task.prompt, "step": [dict(step) for step in task.steps]} for task in TASKS]
    return {"turn": [*turns, _FALLBACK_TURN]}


def build_user_files(model_url: str) -> dict[str, str]:
    """Return the files of the demo's user by their path in HOME, as `rookery mcp add` and OpenCode write them."""
    server = {"command": [sys.executable, "-I", str(_HERE / "tickets.py")]}
    # Nothing is undone in the demo, and snapshots for undo take longer than the rest of a turn.
    opencode = {**opencode_config(model_url), "autoupdate": False, "share": "disabled", "snapshot": False}
    # With these files OpenCode considers its plugin package installed, and needs no network for it.
    package = {"dependencies": {"@opencode-ai/plugin": PINNED_VERSION}}
    lock = {"name": "demo", "lockfileVersion": 3, "packages": {"": package}}
    return {
        ".config/rookery/mcp.json": json.dumps({"servers": {SERVER: server}}, indent=2),
        ".config/opencode/opencode.json": json.dumps(opencode, indent=2),
        ".config/opencode/plugin/toast.js": (_HERE / "toast.js").read_text(encoding="utf-8"),
        ".config/opencode/node_modules/.package-lock.json": "{}",
        ".config/opencode/package.json": json.dumps(package),
        ".config/opencode/package-lock.json": json.dumps(lock),
    }
