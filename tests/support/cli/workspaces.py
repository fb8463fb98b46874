"""Workspaces that are created through the command line, as a user does."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.cli.user import at_a_terminal
from tests.support.daemon.process import rookery
from tests.support.workspaces.service import make_repository


def app(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """Create a repository and register it."""
    made = make_repository(folder, files)
    assert rookery("project", "add", str(made)).returncode == 0
    return made


def trusted_app(folder: Path, files: Mapping[str, str]) -> Path:
    """Create a repository that its user adds at a terminal, which approves its content."""
    made = make_repository(folder, files)
    with at_a_terminal("project", "add", cwd=made) as person:
        assert person.ends() == 0, person.text
    return made


def ws(*words: str, cwd: Path, code: int = 0, env: Mapping[str, str] | None = None) -> str:
    """Run `rookery ws`, check that it ends with `code`, and return its output."""
    done = run(*words, cwd=cwd, env=env)
    assert done.returncode == code, done.stderr
    return done.stdout


def run(*words: str, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return rookery("ws", *words, cwd=cwd, env=env)


def made(name: str, *words: str, cwd: Path) -> Path:
    """Create a workspace and wait until it is ready."""
    return Path(ws("create", name, *words, cwd=cwd).strip())


def told(*words: str, cwd: Path) -> Any:
    """Return the JSON output of a command."""
    return json.loads(ws(*words, "--json", cwd=cwd))


def names(cwd: Path) -> list[str]:
    return [one["name"] for one in told("list", "--no-status", cwd=cwd)]
