"""An agent belongs to its workspace wherever that is: one that is moved leaves none behind."""

from pathlib import Path

import psutil
import pytest

from tests.support.agents.host import start_agent_host
from tests.support.agents.watcher import steps
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@requirement("agent.spawn.one")
async def test_what_runs_for_a_workspace_where_it_was_before_ends_when_it_is_seen_or_closed_elsewhere() -> None:
    checkout = make_repository(Path.home() / "app")
    async with start_agent_host(steps(hello=[{"say": "hello"}]), checkout, start="use") as host:
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
