"""Sessions for tests: a daemon with an agent whose model plays one script, and permissions that ask."""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.support.daemon.system import FullSystem, start_system
from tests.support.workspaces.service import make_repository

# What is said decides what the model does, as often as it is said.
SCRIPT: dict[str, Any] = {
    "turn": [
        {"when": "hello", "step": [{"say": "Good morning."}]},
        {"when": "list", "step": [{"call": "glob", "with": {"pattern": "*.md"}}, {"say": "There it is."}]},
        {
            "when": "Which pages",
            "step": [{"call": "glob", "with": {"pattern": "*.md"}}, {"say": "There is one: README.md."}],
        },
        {
            "when": "look around",
            "step": [{"say": "I look first.", "call": "glob", "with": {"pattern": "*.md"}}, {"say": "One page."}],
        },
        {"when": "fail", "step": [{"error": 400, "message": "no credit left"}]},
        {
            "when": "work slowly",
            "step": [
                {"say": "I look first.", "call": "glob", "with": {"pattern": "*.md"}},
                {"say": "At last.", "hold": "slow"},
            ],
        },
        # Longer than any test waits, unless somebody ends the turn.
        {"when": "type slowly", "step": [{"say": " ".join(f"word-{n}" for n in range(1000)), "pace": 0.5}]},
        {"when": "hold", "step": [{"say": "At last.", "hold": "later"}]},
        {
            "when": "ask",
            "step": [
                {"call": "bash", "with": {"command": "echo asked > asked.txt", "description": "Writes a file"}},
                {"say": "Done."},
            ],
        },
        {
            "when": "run until told",
            "step": [
                {"call": "bash", "with": {"command": "until [ -e go ]; do sleep 0.1; done", "description": "Waits"}},
                {"say": "I have begun."},
            ],
        },
        {"when": "BOULDER ENFORCEMENT", "step": [{"say": "I go on."}]},
    ]
}
README = "# The app\n"


@asynccontextmanager
async def start_system_with_sessions(*names: str, **settings: str) -> AsyncGenerator[tuple[FullSystem, list[Path]]]:
    """Start a daemon with these workspaces of one project, and yield their folders. Shell commands ask first."""
    app = make_repository(Path(os.environ["HOME"]) / "src" / "app", {"README.md": README})
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        async with start_system(SCRIPT, app) as system:
            config = Path(os.environ["HOME"]) / ".config" / "opencode" / "opencode.json"
            written = json.loads(config.read_text())
            config.write_text(json.dumps({**written, "permission": {"bash": "ask"}}))
            made = [await system.create(name) for name in names]
            yield system, [Path(one["path"]) for one in made]
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def terminals(system: FullSystem) -> list[psutil.Process]:
    """Return the processes of OpenCode's interface that the daemon runs."""
    found: list[psutil.Process] = []
    for one in psutil.Process(system.daemon.pid).children(recursive=True):
        with suppress(psutil.Error):  # commands come and go
            found += [one] if "attach" in one.cmdline() else []
    return found
