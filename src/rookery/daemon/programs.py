"""What the doctor finds out about other programs; and what a check is."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rookery.system import environment
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.spawn import Spawner

Verdict = Literal["ok", "warning", "failed"]

_MIN_GIT = (2, 36)
_MIN_NODE = (22, 0)


@dataclass(frozen=True)
class Check:
    id: str
    status: Verdict
    summary: str
    remedy: str = ""


class Programs:
    """What other programs say of their version."""

    def __init__(self) -> None:
        self.spawner = Spawner(new_id())

    async def version(self, program: str) -> tuple[str, tuple[int, ...]] | None:
        """The first line of `--version` and the numbers in it; None if the program is not there."""
        path = shutil.which(program)
        return await self.said([path]) if path is not None else None

    async def said(self, command: Sequence[str]) -> tuple[str, tuple[int, ...]]:
        """The first line that a command answers to `--version`, and the numbers in it."""
        name = Path(command[-1]).name
        try:
            ran = await self.spawner.run(
                [*command, "--version"], name=name, cwd=Path("/"), env=environment.allowed(), timeout=20
            )
        except RookeryError as error:
            return error.message, ()
        line = (ran.stdout or ran.stderr).decode("utf-8", "replace").strip().partition("\n")[0]
        numbers = re.search(r"\d+(\.\d+)+", line)
        return line, tuple(int(part) for part in numbers[0].split(".")) if numbers else ()

    async def git(self) -> Check:
        found = await self.version("git")
        if found is None:
            return Check("git", "failed", "git was not found", "install git")
        if found[1] < _MIN_GIT:
            return Check("git", "failed", f"{found[0]} is too old", f"install git {_MIN_GIT[0]}.{_MIN_GIT[1]} or later")
        return Check("git", "ok", found[0])

    async def node(self) -> Check:
        found = await self.version("node")
        if found is None:
            return Check(
                "node", "warning", "node was not found; many MCP servers need it", "install Node.js 22 or later"
            )
        if found[1] < _MIN_NODE:
            return Check("node", "warning", f"node {found[0]} is old", "install Node.js 22 or later")
        return Check("node", "ok", f"node {found[0]}")

    async def tool(self, id_: str, program: str, *, needed_for: str, remedy: str = "") -> Check:
        found = await self.version(program)
        if found is None:
            return Check(id_, "warning", f"{program} was not found ({needed_for})", remedy or f"install {program}")
        if not found[1]:
            return Check(id_, "warning", f"{program} does not tell its version: {found[0]}", remedy)
        return Check(id_, "ok", found[0])
