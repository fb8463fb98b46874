"""The order in which agents and the gateway start and stop in one daemon."""

from pathlib import Path

import pytest

from tests.support.agents.watcher import make_script
from tests.support.daemon.process import alive
from tests.support.daemon.system import is_ready, start_system
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@requirement("agent.order.start", "agent.order.stop", "agent.config.file")
async def test_d07_the_gateway_starts_before_the_first_agent_and_stops_after_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOKERY_LOG_LEVEL", "debug")
    script = make_script(work=[{"say": "never", "hold": "for ever"}])
    async with start_system(script, make_repository(tmp_path / "app")) as system:
        busy = await system.create("busy", "work")
        await system.until(busy, lambda one: one["status"]["agent"]["type"] == "busy")
        config = system.daemon.state / "opencode" / "rookery-mcp.json"
        written = config.stat().st_mtime
        # In the next life the agent of what was open starts by itself, as soon as it may.
        await system.killed()
        await system.start_again()
        shown = await system.until(busy, is_ready)
        assert written < config.stat().st_mtime
    assert not alive(shown["agent"]["pid"])
    told = [line["message"] for line in system.daemon.log()]
    second = told[[at for at, one in enumerate(told) if one.startswith("http is up")][1] :]
    pid = shown["agent"]["pid"]
    expected = [f"started agent busy (pid {pid})", f"agent busy (pid {pid}) ended with"]
    expected += [f"{service} has stopped" for service in ("agents", "http", "gateway")]
    order = [next(at for at, one in enumerate(second) if one.startswith(what)) for what in expected]
    assert order == sorted(order)
