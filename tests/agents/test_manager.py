"""The agent of a workspace that was moved: none is left at the old place."""

from pathlib import Path

import psutil
import pytest

from tests.support.agents.host import start_agent_host
from tests.support.agents.watcher import make_script
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@requirement("agent.spawn.one")
async def test_the_agent_of_a_moved_workspace_ends_when_that_is_seen_used_or_closed() -> None:
    checkout = make_repository(Path.home() / "app")
    async with start_agent_host(make_script(hello=[{"say": "hello"}]), checkout, start="use") as host:
        made = await host.create("one")
        for number, then in enumerate(("closed", "used", "seen")):
            before = (await host.agents.ensure_running(made)).process.pid
            moved = Path.home() / f"moved-{number}"
            git(checkout, "worktree", "move", str(made.path), str(moved))
            made = await host.gateway.workspaces.at(moved)
            if then == "closed":
                await host.gateway.workspaces.close(made)
            elif then == "used":
                await host.agents.ensure_running(made)
            else:
                assert (await host.agents.process(made)).state == "stopped"
            assert not psutil.pid_exists(before) or psutil.Process(before).status() == psutil.STATUS_ZOMBIE
            assert [one.path for one in host.agents.workspaces()] == ([moved] if then == "used" else [])
