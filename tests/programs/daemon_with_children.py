"""The real daemon, which on start also starts the given trees: words of tree.py, joined by commas."""

import asyncio
import sys
from pathlib import Path

from rookery.daemon import __main__ as daemon
from rookery.daemon.services.core import ChildrenService
from rookery.system.process.environment import allowed_environment

TREE = str(Path(__file__).with_name("tree.py"))
NOTES, TREES = Path(sys.argv[1]), sys.argv[2:]
_start = ChildrenService.start


async def start_with_trees(self: ChildrenService) -> None:
    await _start(self)
    lines: list[bytes] = []
    for number, words in enumerate(TREES):
        child = await self.spawner.start(
            [sys.executable, TREE, *words.split(",")],
            name=f"tree {number}",
            cwd=Path("/"),
            env=allowed_environment(),
            stdout="stream",
        )
        assert child.stdout is not None
        async with asyncio.timeout(30):
            while (line := await child.stdout.readline()) != b"ready\n":
                lines.append(line)
    NOTES.write_bytes(b"".join(lines))


ChildrenService.start = start_with_trees
sys.exit(daemon.main(["serve", "--foreground"]))
