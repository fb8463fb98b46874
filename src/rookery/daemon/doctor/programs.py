"""Checks of other programs, and the `Check` record."""

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rookery.system.causes import describe_end, find_cause
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.ids import new_id
from rookery.system.process import environment
from rookery.system.process.spawn import Spawner

Verdict = Literal["ok", "warning", "failed"]

_MIN_GIT = (2, 36)
_MIN_NODE = (22, 0)
# What git needs to know about the author of a commit, and the arguments that set it.
_USER = {"user.name": 'user.name "Your Name"', "user.email": "user.email you@example.com"}
# The doctor changes nothing: node would store compiled code in the folder for temporary files.
NO_NODE_CACHE = {"NODE_DISABLE_COMPILE_CACHE": "1"}


@dataclass(frozen=True)
class Check:
    """One row of `rookery doctor`."""

    id: str
    status: Verdict
    summary: str
    remedy: str = ""


class ProgramChecks:
    """Checks of the versions of other programs."""

    def __init__(self) -> None:
        self.spawner = Spawner(new_id())

    async def find_version(self, program: str) -> tuple[str, tuple[int, ...]] | None:
        """Return the first line of `--version` and the numbers in it; None if the program is not installed."""
        path = shutil.which(program)
        return await self.read_version([path]) if path is not None else None

    async def read_version(self, command: Sequence[str]) -> tuple[str, tuple[int, ...]]:
        """Return the first line that a command prints for `--version`, and the numbers in it.

        If the command fails, return the cause or its error output, without numbers.
        """
        name = Path(command[-1]).name
        env = environment.allowed_environment(NO_NODE_CACHE)
        try:
            result = await self.spawner.run([*command, "--version"], name=name, cwd=Path("/"), env=env, timeout=20)
        except RookeryError as error:
            return error.message, ()
        stdout, stderr = (text.decode("utf-8", "replace").strip() for text in (result.stdout, result.stderr))
        line = (stdout or stderr).partition("\n")[0]
        if result.returncode != 0:
            cause = find_cause(result.returncode, f"{stderr}\n{stdout}", (env.get("HOME", "/"),))
            why = cause.message if cause is not None else stderr.partition("\n")[0] or line
            return why or f"it {describe_end(result.returncode)}", ()
        numbers = re.search(r"\d+(\.\d+)+", line)
        return line, tuple(int(part) for part in numbers[0].split(".")) if numbers else ()

    async def git(self) -> Check:
        version = await self.find_version("git")
        if version is None:
            return Check("git", "failed", "git was not found", "install git")
        if not version[1]:
            return Check("git", "failed", f"cannot read the version of git: {version[0]}", "reinstall git")
        if version[1] < _MIN_GIT:
            return Check(
                "git", "failed", f"{version[0]} is too old", f"install git {_MIN_GIT[0]}.{_MIN_GIT[1]} or later"
            )
        return Check("git", "ok", version[0])

    async def git_user(self, folder: Path) -> Check:
        """Check that a commit in `folder` would have an author."""
        missing = [key for key in _USER if not await self._is_set(folder, key)]
        if missing:
            summary = f"git has no {' and no '.join(missing)}, so commits fail, including those of agents"
            return Check(
                "git-user", "warning", summary, "; ".join(f"git config --global {_USER[key]}" for key in missing)
            )
        return Check("git-user", "ok", "user.name and user.email are set")

    async def _is_set(self, folder: Path, key: str) -> bool:
        variable = key.partition(".")[2].upper()
        if all(os.environ.get(f"GIT_{role}_{variable}") for role in ("AUTHOR", "COMMITTER")):
            return True
        try:
            return bool((await Git(self.spawner).run(folder, "config", "--get", key)).stdout.strip())
        except RookeryError:
            return False

    async def node(self) -> Check:
        version = await self.find_version("node")
        if version is None:
            return Check(
                "node", "warning", "node was not found; many MCP servers need it", "install Node.js 22 or later"
            )
        if not version[1]:
            summary = f"cannot read the version of node: {version[0]}"
            return Check("node", "warning", summary, "install Node.js 22 or later")
        if version[1] < _MIN_NODE:
            return Check("node", "warning", f"node {version[0]} is old", "install Node.js 22 or later")
        return Check("node", "ok", f"node {version[0]}")

    async def tool(self, id_: str, program: str, *, needed_for: str, remedy: str = "") -> Check:
        version = await self.find_version(program)
        if version is None:
            return Check(id_, "warning", f"{program} was not found ({needed_for})", remedy or f"install {program}")
        if not version[1]:
            summary = f"cannot read the version of {program}: {version[0]}"
            return Check(id_, "warning", summary, remedy or f"reinstall {program}")
        return Check(id_, "ok", version[0])
