"""Agents in the daemon, with the real OpenCode: they come and go with workspaces, and outlive what befalls them."""

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
from tests.support.agents.host import Agency, an_agency, environment_of
from tests.support.agents.watcher import steps
from tests.support.daemon.process import alive, wait_dead
from tests.support.http.listener import soon
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SCRIPT = steps(
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
    async with an_agency(SCRIPT, make_repository(Path.home() / "src" / "日本")) as agency:
        config = agency.gateway.parts.workspaces.agents.launcher.state / "opencode" / "rookery-mcp.json"
        assert list(json.loads(config.read_text())["mcp"]) == ["rookery"]
        made = await agency.create("feature/one", prompt="run")
        agent = await agency.until_is(made, "running")
        assert agent.pid is not None and agent.error is None and agent.notes == ()
        assert psutil.Process(agent.pid).cwd() == str(made.path)
        assert await agency.tools.agents.port(made) == agent.port

        given = environment_of(agent.pid)
        assert given["OPENCODE_CONFIG"] == str(config)
        assert given["ROOKERY_MCP_PORT"] == given["CODEHYDRA_MCP_PORT"] == str(agency.gateway.site.port)
        assert given["ROOKERY_WORKSPACE_PATH"] == given["CODEHYDRA_WORKSPACE_PATH"] == str(made.path)
        assert "日本" in str(made.path) and given["ROOKERY_WORKSPACE_HEADER"] == quote(str(made.path))
        assert given["ROOKERY_TOKEN"] == await agency.gateway.workspaces.token(made)
        assert given["ROOKERY_WORKSPACE_NAME"] == "feature/one"
        ports = (await agency.gateway.workspaces.environment(made))["ROOKERY_PORTS"]
        assert given["ROOKERY_PORTS"] == ports and ports.startswith(f"{given['ROOKERY_PORT']}-")

        session = await agency.said(made, "it ran")
        found = await agency.tools.agents.session(made)
        assert found is not None and (found.port, found.session_id) == (agent.port, session)
        life = await agency.agents.ensure_running(made)
        told = (await life.client.messages(session))[-2].parts
        printed = next(part.state.output for part in told if part.state is not None) or ""
        assert f"ROOKERY_PORTS={ports}\n" in printed
        assert given["OPENCODE_SERVER_PASSWORD"] not in printed and given["ROOKERY_TOKEN"] not in printed

        status, shown = await agency.rest("GET", made)
        assert (status, shown["state"], shown["status"]["type"]) == (200, "running", "idle")
        assert shown["sessions"][0]["id"] == session
        assert (await agency.rest("GET", made, "/logs?tail=3"))[1]["lines"]
        assert (await agency.rest("GET", made, "/attach"))[0] == 403

        assert (await agency.rest("POST", made, "/stop"))[1]["state"] == "stopped"
        assert not alive(agent.pid)
        assert await agency.tools.agents.port(made) is None
        again = (await agency.rest("POST", made, "/start"))[1]
        assert (again["state"], again["port"]) == ("running", agent.port)
        await agency.gateway.workspaces.close(made)
        assert not alive(again["pid"])
        assert agency.told(made) == ["starting", "running", "stopped", "starting", "running", "stopped"]


async def test_an_agent_ends_in_the_middle_of_its_turn_when_other_hands_delete_its_worktree() -> None:
    checkout = app()
    async with an_agency(SCRIPT, checkout) as agency:
        made = await agency.create("one", prompt="work")
        await agency.session_is(made, "busy")
        pid = (await agency.agents.process(made)).pid
        git(checkout, "worktree", "remove", "--force", str(made.path))
        await agency.until(made, lambda agent: agent.pid is None)
        assert pid is not None and agency.agents.workspaces() == []
        # It is known no more before it has ended.
        await asyncio.to_thread(wait_dead, pid)


@requirement("agent.restart.policy", "agent.crash.interrupted")
async def test_d15_an_agent_that_is_killed_is_back_on_its_port_and_what_was_cut_off_is_taken_up() -> None:
    async with an_agency(SCRIPT, app(), pace=QUICK) as agency:
        made = await agency.create("one", prompt="work")
        session = await agency.session_is(made, "busy")
        await back_after(agency, made, signal.SIGKILL, "SIGKILL")
        await agency.session_is(made, "interrupted")
        (need,) = (await agency.agents.process(made)).attention
        assert need.reason == "interrupted"
        status, told = await agency.rest("POST", made, "/resume")
        assert (status, told["resumed"]) == (200, [session])
        assert await agency.said(made, "taken up again") == session
        assert (await agency.agents.process(made)).attention == ()


@requirement("agent.restart.policy")
async def test_d15_an_agent_that_hangs_is_ended_and_back_on_its_port() -> None:
    async with an_agency(SCRIPT, app(), pace=QUICK) as agency:
        made = await agency.create("one")
        await agency.until_is(made, "running")
        await back_after(agency, made, signal.SIGSTOP, "OpenCode does not respond")
        assert agency.told(made)[-3:] == ["running", "restarting", "running"]


async def back_after(agency: Agency, made: Workspace, blow: signal.Signals, told: str) -> None:
    before = await agency.until_is(made, "running")
    assert before.pid is not None
    os.kill(before.pid, blow)
    broken = await agency.until(made, lambda one: one.state in ("restarting", "failed"))
    assert broken.error is not None and told in broken.error
    back = await agency.until_is(made, "running")
    assert (back.port, back.error) == (before.port, None)
    assert back.pid != before.pid and not alive(before.pid)


@requirement("agent.sleep.wake")
async def test_an_agent_that_idles_sleeps_until_something_needs_it() -> None:
    async with an_agency(SCRIPT, app(), idle_seconds=1) as agency:
        made = await agency.create("one", prompt="work")
        agent = await agency.until_is(made, "running")
        await agency.session_is(made, "busy")
        # A turn that runs keeps it awake; its end lets it sleep.
        assert "asleep" not in agency.told(made)
        agency.model.release("work")
        asleep = await agency.until_is(made, "asleep")
        assert (asleep.port, asleep.pid, asleep.error) == (None, None, None)
        assert agent.pid is not None and not alive(agent.pid)
        assert (await agency.agents.status(made)).counts.total == 1
        found = await agency.tools.agents.session(made)
        assert found is not None and found.port == agent.port
        await agency.until_is(made, "asleep")
        assert await agency.tools.agents.port(made) == agent.port


@requirement("ws.create.barrier")
async def test_agent_and_first_prompt_wait_for_the_setup_and_get_its_log_if_it_failed() -> None:
    setup = "[workspace]\nsetup = 'echo the well is dry; exit 3'\n"
    async with an_agency(SCRIPT, app({".rookery/config.toml": setup})) as agency:
        made = await agency.create("one", prompt="hello")
        assert made.code == "needs-approval"
        held = await agency.agents.process(made)
        assert (held.state, held.pid) == ("starting", None)
        assert held.detail == "the setup command of the workspace waits for approval"
        assert await agency.tools.agents.session(made) is None
        subject = (await agency.gateway.parts.workspaces.list_subjects())[0]
        await agency.gateway.approvals.approve(subject, subject.digest)
        await agency.gateway.workspaces.on_approved(made.project.path)
        session = await agency.said(made, "hello yourself")
        life = await agency.agents.ensure_running(made)
        asked = (await life.client.messages(session))[0].text
        assert "the setup command ended with 3" in asked and "the well is dry" in asked
        assert asked.endswith("\n\nhello")
        assert (await agency.tools.workspaces.get(made.project.id, "one")).state == "failed"


@requirement("agent.config.no-port", "ws.daily.attention")
async def test_without_a_model_or_a_gateway_an_agent_runs_and_says_what_does_not_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard = tmp_path / "heard"
    os.mkfifo(heard)
    notify = f'echo "$ROOKERY_WORKSPACE_NAME $ROOKERY_ATTENTION" > {heard}'
    async with an_agency(SCRIPT, app(), model=False, gateway_port=False, notify=notify) as agency:
        with pytest.raises(RookeryError, match="one was created, but its prompt was not sent: OpenCode has") as no:
            await agency.create("one", prompt="hello")
        assert (no.value.code, no.value.remedy) == (
            "no-provider",
            "sign in to one: rookery agent login (opencode auth login)",
        )
        assert await soon(asyncio.to_thread(heard.read_text)) == "one prompt-not-sent\n"
        made = await agency.tools.workspaces.get((await agency.tools.resolve_project(None)).id, "one")
        agent = await agency.until_is(made, "running")
        assert [one.reason for one in agent.attention] == ["prompt-not-sent"]
        assert agent.notes == ("there is no gateway port, so the agent starts without Rookery's MCP entry",)
        assert f"the agent of one: {agent.notes[0]}" in caplog.messages
        assert agent.pid is not None and "OPENCODE_CONFIG" not in environment_of(agent.pid)
        life = await agency.agents.ensure_running(made)
        assert "rookery" not in (await life.client.config()).get("mcp", {})
        # It is still there to be sent once somebody has signed in.
        with pytest.raises(RookeryError, match="no usable model provider"):
            await agency.agents.resume(made)


async def test_a_workspace_without_an_agent_stays_so_and_an_empty_prompt_is_none() -> None:
    async with an_agency(SCRIPT, app()) as agency:
        made = await agency.create("one", agent=False)
        await agency.gateway.workspaces.start_open_workspaces()
        assert (await agency.agents.process(made)).state == "stopped"
        with pytest.raises(RookeryError, match="the prompt is empty"):
            await agency.create("two", prompt=" ")
        await agency.tools.delete(made, wait=True)
