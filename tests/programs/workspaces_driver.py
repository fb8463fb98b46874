"""One run of the workspace service: create `PROJECT NAME [BRANCH]`, or only start; print the workspaces."""

import asyncio
import json
import os
import sys
from pathlib import Path

from tests.support.workspaces.service import start_workspaces


async def main(project: str = "", name: str = "", branch: str | None = None) -> None:
    async with start_workspaces(Path(os.environ["ROOKERY_HOME"])) as served:
        if name:
            await served.workspaces.wait_until_prepared(await served.workspaces.create(project, name, branch=branch))
        for one in await served.workspaces.list():
            await served.workspaces.wait_until_prepared(one)
        print(json.dumps([one.as_dict() for one in await served.workspaces.list()]))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
