"""Agents in the daemon, with the real OpenCode: they start and stop with workspaces and recover from failures."""

import asyncio
import json
import os
import signal
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from rookery.agents.policy import SupervisionIntervals
from rookery.system.errors import RookeryError
from rookery.workspaces.model import Workspace
from tests.support.agents.host import AgentHost, environment_of, start_agent_host
from tests.support.agents.watcher import make_script
from tests.support.daemon.process import alive, wait_dead
from tests.support.http.listener import within_limit
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SCRIPT = make_script(
    hello=[{"say": "hello yourself"}],
    work=[{"say": "at last", "hold": "work"}],
    cut=[{"say": "taken up again"}],
    run=[{"call": "bash", "with": {"command": "env", "description": "look"}}, {"say": "it ran"}],
)
# OpenCode's heart beats every ten seconds.
QUICK = SupervisionIntervals(first_pause=0.1, check=2.0, between_checks=0.1, silence=12.0)


def app(files: dict[str, str] | None = None) -> Path:
    return make_repository(Path.home() / "src" / "app", files)


@requirement("agent.order.start", "agent.env.secrets", "ws.port.get", "agent.cli.verbs")
@requirement("agent.env.config", "agent.env.port", "agent.env.path", "ws.daily.ports")
async def test_an_agent_comes_with_its_workspace_and_goes_with_it() -> None:
    async with start_agent_host(SCRIPT, make_repository(Path.home() / "src" / "日本")) as host:
        config = host.gateway.parts.workspaces.agents.launcher.state / "opencode" / "rookery-mcp.json"
        assert list(json.loads(config.read_text())["mcp"]) == ["rookery"]
        made = await host.create("feature/one", prompt="run")
        agent = await host.until_is(made, "running")
        assert agent.pid is not None and agent.error is None and agent.notes == ()
        assert psutil.Process(agent.pid).cwd() == str(made.path)
        assert await host.tools.agents.port(made) == agent.port

        given = environment_of(agent.pid)
        assert given["OPENCODE_CONFIG"] == str(config)
        assert given["ROOKERY_MCP_PORT"] == given["CODEHYDRA_MCP_PORT"] == str(host.gateway.site.port)
        assert given["ROOKERY_WORKSPACE_PATH"] == given["CODEHYDRA_WORKSPACE_PATH"] == str(made.path)
        assert "日本" in str(made.path) and given["ROOKERY_WORKSPACE_HEADER"] == quote(str(made.path))
        assert given["ROOKERY_TOKEN"] == await host.gateway.workspaces.token(made)
        assert given["ROOKERY_WORKSPACE_NAME"] == "feature/one"
        ports = (await host.gateway.workspaces.environment(made))["ROOKERY_PORTS"]
        assert given["ROOKERY_PORTS"] == ports and ports.startswith(f"{given['ROOKERY_PORT']}-")

        session = await host.said(made, "it ran")
        found = await host.tools.agents.session(made)
        assert found is not None and (found.port, found.session_id) == (agent.port, session)
        life = await host.agents.ensure_running(made)
        told = (await life.client.messages(session))[-2].parts
        printed = next(part.state.output for part in told if part.state is not None) or ""
        assert f"ROOKERY_PORTS={ports}\n" in printed
        assert given["OPENCODE_SERVER_PASSWORD"] not in printed and given["ROOKERY_TOKEN"] not in printed

        status, shown = await host.rest("GET", made)
        assert (status, shown["state"], shown["status"]["type"]) == (200, "running", "idle")
        assert shown["sessions"][0]["id"] == session
        assert (await host.rest("GET", made, "/logs?tail=3"))[1]["lines"]
        assert (await host.rest("GET", made, "/attach"))[0] == 403

        assert (await host.rest("POST", made, "/stop"))[1]["state"] == "stopped"
        assert not alive(agent.pid)
        assert await host.tools.agents.port(made) is None
        again = (await host.rest("POST", made, "/start"))[1]
        assert (again["state"], again["port"]) == ("running", agent.port)
        await host.gateway.workspaces.close(made)
        assert not alive(again["pid"])
        assert host.told(made) == ["starting", "running", "stopped", "starting", "running", "stopped"]


async def test_an_agent_ends_in_mid_turn_when_its_worktree_is_deleted_from_outside() -> None:
    checkout = app()
    async with start_agent_host(SCRIPT, checkout) as host:
        made = await host.create("one", prompt="work")
        await host.session_is(made, "busy")
        pid = (await host.agents.process(made)).pid
        git(checkout, "worktree", "remove", "--force", str(made.path))
        await host.until(made, lambda agent: agent.pid is None)
        assert pid is not None and host.agents.workspaces() == []
        # It is known no more before it has ended.
        await asyncio.to_thread(wait_dead, pid)


@requirement("agent.restart.policy", "agent.crash.interrupted")
async def test_d15_a_killed_agent_restarts_on_its_port_and_its_turn_can_be_resumed() -> None:
    async with start_agent_host(SCRIPT, app(), pace=QUICK) as host:
        made = await host.create("one", prompt="work")
        session = await host.session_is(made, "busy")
        await back_after(host, made, signal.SIGKILL, "SIGKILL")
        await host.session_is(made, "interrupted")
        (need,) = (await host.agents.process(made)).attention
        assert need.reason == "interrupted"
        status, told = await host.rest("POST", made, "/resume")
        assert (status, told["resumed"]) == (200, [session])
        assert await host.said(made, "taken up again") == session
        assert (await host.agents.process(made)).attention == ()


@requirement("agent.restart.policy")
async def test_d15_an_agent_that_hangs_is_ended_and_back_on_its_port() -> None:
    async with start_agent_host(SCRIPT, app(), pace=QUICK) as host:
        made = await host.create("one")
        await host.until_is(made, "running")
        await back_after(host, made, signal.SIGSTOP, "OpenCode does not respond")
        assert host.told(made)[-3:] == ["running", "restarting", "running"]


async def back_after(host: AgentHost, made: Workspace, blow: signal.Signals, told: str) -> None:
    before = await host.until_is(made, "running")
    assert before.pid is not None
    os.kill(before.pid, blow)
    broken = await host.until(made, lambda one: one.state in ("restarting", "failed"))
    assert broken.error is not None and told in broken.error
    back = await host.until_is(made, "running")
    assert (back.port, back.error) == (before.port, None)
    assert back.pid != before.pid and not alive(before.pid)


@requirement("agent.sleep.wake")
async def test_an_agent_that_idles_sleeps_until_something_needs_it() -> None:
    async with start_agent_host(SCRIPT, app(), idle_seconds=1) as host:
        made = await host.create("one", prompt="work")
        agent = await host.until_is(made, "running")
        await host.session_is(made, "busy")
        # A turn that runs keeps it awake; its end lets it sleep.
        assert "asleep" not in host.told(made)
        host.model.release("work")
        asleep = await host.until_is(made, "asleep")
        assert (asleep.port, asleep.pid, asleep.error) == (None, None, None)
        assert agent.pid is not None and not alive(agent.pid)
        assert (await host.agents.status(made)).counts.total == 1
        found = await host.tools.agents.session(made)
        assert found is not None and found.port == agent.port
        await host.until_is(made, "asleep")
        assert await host.tools.agents.port(made) == agent.port


@requirement("ws.create.barrier")
async def test_agent_and_first_prompt_wait_for_the_setup_and_get_its_log_if_it_failed() -> None:
    setup = "[workspace]\nsetup = 'echo the well is dry; exit 3'\n"
    async with start_agent_host(SCRIPT, app({".rookery/config.toml": setup})) as host:
        made = await host.create("one", prompt="hello")
        assert made.code == "needs-approval"
        held = await host.agents.process(made)
        assert (held.state, held.pid) == ("starting", None)
        assert held.detail == "the setup command of the workspace waits for approval"
        assert await host.tools.agents.session(made) is None
        subject = (await host.gateway.parts.workspaces.list_subjects())[0]
        await host.gateway.approvals.approve(subject, subject.digest)
        await host.gateway.workspaces.on_approved(made.project.path)
        session = await host.said(made, "hello yourself")
        life = await host.agents.ensure_running(made)
        asked = (await life.client.messages(session))[0].text
        assert "the setup command ended with 3" in asked and "the well is dry" in asked
        assert asked.endswith("\n\nhello")
        assert (await host.tools.workspaces.get(made.project.id, "one")).state == "failed"


@requirement("agent.config.no-port", "ws.daily.attention")
async def test_without_a_model_or_a_gateway_an_agent_runs_and_says_what_does_not_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard = tmp_path / "heard"
    os.mkfifo(heard)
    notify = f'echo "$ROOKERY_WORKSPACE_NAME $ROOKERY_ATTENTION" > {heard}'
    async with start_agent_host(SCRIPT, app(), model=False, gateway_port=False, notify=notify) as host:
        with pytest.raises(RookeryError, match="one was created, but its prompt was not sent: OpenCode has") as no:
            await host.create("one", prompt="hello")
        assert (no.value.code, no.value.remedy) == (
            "no-provider",
            "sign in to one: rookery agent login (opencode auth login)",
        )
        assert await within_limit(asyncio.to_thread(heard.read_text)) == "one prompt-not-sent\n"
        made = await host.tools.workspaces.get((await host.tools.resolve_project(None)).id, "one")
        agent = await host.until_is(made, "running")
        assert [one.reason for one in agent.attention] == ["prompt-not-sent"]
        assert agent.notes == ("there is no gateway port, so the agent starts without Rookery's MCP entry",)
        assert f"the agent of one: {agent.notes[0]}" in caplog.messages
        assert agent.pid is not None and "OPENCODE_CONFIG" not in environment_of(agent.pid)
        life = await host.agents.ensure_running(made)
        assert "rookery" not in (await life.client.config()).get("mcp", {})
        # It is still there to be sent once somebody has signed in.
        with pytest.raises(RookeryError, match="no usable model provider"):
            await host.agents.resume(made)


async def test_a_workspace_without_an_agent_stays_so_and_an_empty_prompt_is_none() -> None:
    async with start_agent_host(SCRIPT, app()) as host:
        made = await host.create("one", agent=False)
        await host.gateway.workspaces.start_open_workspaces()
        assert (await host.agents.process(made)).state == "stopped"
        with pytest.raises(RookeryError, match="the prompt is empty"):
            await host.create("two", prompt=" ")
        await host.tools.delete(made, wait=True)
