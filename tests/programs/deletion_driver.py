"""One run of deleting and restoring: `delete APP NAME`, `restore APP NAME`, or `start APP`, which only recovers."""

import asyncio
import os
import sys
from pathlib import Path

from tests.support.workspaces.deletion import start_deletions


async def main(what: str, app: str, name: str = "") -> None:
    async with start_deletions(Path(os.environ["ROOKERY_HOME"]), Path(app)) as ours:
        if what == "delete":
            await ours.removals.delete(await ours.find(name), force=True, wait=True)
        elif what == "restore":
            await ours.removals.restore(name)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
