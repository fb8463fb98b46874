"""The process of one real OpenCode: its start, its end, and failures in between."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import aiohttp
import pytest

from rookery.agents.opencode.process import start_agent
from rookery.agents.opencode.release import PINNED_VERSION
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from tests.support.agents.launch import AgentLauncher, make_launcher
from tests.support.clock import let_pass
from tests.support.daemon.process import unused_port
from tests.support.opencode.home import OpenCodeHome
from tests.support.opencode.process import installed
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@pytest.fixture
def launcher(state: Path) -> AgentLauncher:
    return make_launcher(state)


def wrapped(path: Path, script: str) -> Path:
    """A program that stands in OpenCode's place, and may go on as the real one."""
    path.write_text(f'#!/bin/sh\nreal() {{ exec "{installed().opencode}" "$@"; }}\n{script}\n')
    path.chmod(0o755)
    return path


@requirement("agent.spawn.one", "agent.env.secrets")
async def test_f01_an_agent_listens_on_its_port_and_serves_nobody_without_its_password(
    launcher: AgentLauncher, tmp_path: Path
) -> None:
    port = unused_port()
    async with (
        launcher.agent(make_repository(tmp_path / "日本"), ports=(port,)) as (agent, api),
        aiohttp.ClientSession() as stranger,
    ):
        assert (agent.port, agent.url, agent.is_alive) == (port, f"http://127.0.0.1:{port}", True)
        assert (await api.ask("GET", "/path"))["directory"] == str(tmp_path / "日本")
        for path in ("/global/health", "/doc", "/session", "/event"):
            async with stranger.get(agent.url + path) as answer:
                assert answer.status == 401
        wrong = {"Authorization": aiohttp.encode_basic_auth("opencode", "wrong")}
        async with stranger.get(agent.url + "/session", headers=wrong) as answer:
            assert answer.status == 401
        # It lets the gateway and the user's own programs go first.
        assert os.getpriority(os.PRIO_PROCESS, agent.pid) == os.nice(0) + 5
    ended = await agent.wait()
    assert (ended.expected, ended.reason, agent.is_alive) == (True, "", False)


@requirement("agent.spawn.one")
async def test_d15_a_taken_port_is_left_alone_and_the_next_one_used(launcher: AgentLauncher, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        taken, free = squatter.getsockname()[1], unused_port()
        async with launcher.agent(make_repository(tmp_path / "app"), ports=(taken, free), background=False) as (
            agent,
            _,
        ):
            assert agent.port == free
            # Unless that is not wanted.
            assert os.getpriority(os.PRIO_PROCESS, agent.pid) == os.nice(0)


async def test_d15_without_any_free_port_of_its_own_opencode_takes_one_that_is(
    launcher: AgentLauncher, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        taken = squatter.getsockname()[1]
        async with launcher.agent(make_repository(tmp_path / "app"), ports=(taken,)) as (agent, api):
            assert agent.port != taken
            assert await api.ask("GET", "/session") == []


async def test_d15_a_port_that_is_taken_during_the_start_is_no_failed_start(state: Path, tmp_path: Path) -> None:
    port, free = unused_port(), unused_port()
    count, begun, taken = tmp_path / "count", tmp_path / "begun", tmp_path / "taken"
    os.mkfifo(begun)
    os.mkfifo(taken)
    waits = f'[ "$5" = {port} ] && {{ echo > {begun}; read line < {taken}; }}'
    launcher = make_launcher(state, opencode=wrapped(tmp_path / "opencode", f'echo x >> {count}\n{waits}\nreal "$@"'))
    launch = launcher.launch(make_repository(tmp_path / "app"), ports=(port, free))
    start = asyncio.create_task(start_agent(launcher.spawner, launch))
    await asyncio.wait_for(asyncio.to_thread(begun.read_text), 30)
    with socket.create_server(("127.0.0.1", port)):
        await asyncio.wait_for(asyncio.to_thread(taken.write_text, "\n"), 30)
        agent = await start
        try:
            assert agent.port == free
            assert count.read_text() == "x\nx\n"
        finally:
            await agent.stop()


@requirement("agent.spawn.one")
async def test_d15_an_early_exit_is_tried_once_more(
    state: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    once = f'[ -e {tmp_path}/tried ] && real "$@"\ntouch {tmp_path}/tried\necho out of luck >&2\nexit 1'
    launcher = make_launcher(state, opencode=wrapped(tmp_path / "opencode", once))
    async with launcher.agent(make_repository(tmp_path / "app")) as (agent, api):
        assert agent.is_alive
        assert await api.ask("GET", "/session") == []
    assert "OpenCode ended with 1\nout of luck; trying once more" in caplog.text


async def test_d15_a_second_early_exit_is_an_error_with_the_last_words(state: Path, tmp_path: Path) -> None:
    count = tmp_path / "count"
    never = f"echo x >> {count}; echo Failed query: CREATE TABLE; exit 1"
    launcher = make_launcher(state, opencode=wrapped(tmp_path / "opencode", never))
    launch = launcher.launch(make_repository(tmp_path / "app"))
    with pytest.raises(RookeryError, match="OpenCode ended with 1\nFailed query: CREATE TABLE") as caught:
        await start_agent(launcher.spawner, launch)
    assert caught.value.code == "agent-unavailable"
    assert str(launch.log) in caught.value.remedy
    assert count.read_text() == "x\nx\n"
    assert "Failed query" in launch.log.read_text()


async def test_d15_an_opencode_that_hangs_before_it_listens_is_given_up_and_ended(state: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    hangs = f"echo $$ >> {tmp_path}/pids; echo > {tmp_path}/begun; kill -STOP $$"
    launcher = make_launcher(state, opencode=wrapped(tmp_path / "opencode", hangs))
    launch = launcher.launch(make_repository(tmp_path / "app"), seconds=10)
    start = asyncio.create_task(start_agent(launcher.spawner, launch))
    for _ in range(2):
        await asyncio.wait_for(asyncio.to_thread((tmp_path / "begun").read_text), 30)
        let_pass(10)
    with pytest.raises(RookeryError, match="OpenCode did not listen within 10 s"):
        await start
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@requirement("agent.env.user")
async def test_d15_a_killed_agent_reports_why_it_ended_and_keeps_its_sessions(
    launcher: AgentLauncher, tmp_path: Path
) -> None:
    app = make_repository(tmp_path / "app")
    async with launcher.agent(app) as (agent, api):
        session = await api.session()
        os.kill(agent.pid, signal.SIGKILL)
        ended = await asyncio.wait_for(agent.wait(), 30)
        assert (ended.code, ended.expected) == (-9, False)
        await agent.stop()
        assert await agent.wait() == ended
        assert ended.reason.startswith("OpenCode was killed by SIGKILL\n")
        assert "level=INFO" in ended.reason
        assert "opencode server listening" in agent.log.path.read_text()
    async with launcher.agent(app) as (_, api):
        assert [one["id"] for one in await api.ask("GET", "/session")] == [session]


async def test_a_program_that_serves_strangers_is_not_used(state: Path, tmp_path: Path) -> None:
    open_to_all = wrapped(tmp_path / "opencode", 'unset OPENCODE_SERVER_PASSWORD\nreal "$@"')
    launcher = make_launcher(state, opencode=open_to_all)
    with pytest.raises(RookeryError, match="which it should reject"):
        await start_agent(launcher.spawner, launcher.launch(make_repository(tmp_path / "app")))
    assert not launcher.spawner.children


async def test_a_start_that_is_cancelled_leaves_no_process(state: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    launcher = make_launcher(state, opencode=wrapped(tmp_path / "opencode", f"echo > {tmp_path}/begun; sleep 600"))
    start = asyncio.create_task(start_agent(launcher.spawner, launcher.launch(make_repository(tmp_path / "app"))))
    await asyncio.wait_for(asyncio.to_thread((tmp_path / "begun").read_text), 30)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not launcher.spawner.children


async def test_the_first_start_on_a_data_folder_runs_alone(state: Path, tmp_path: Path) -> None:
    """Four at once on a fresh one break each other's set-up otherwise. Two state folders share it here."""
    home = OpenCodeHome.make(Path(os.environ["HOME"]) / "fresh")
    app = make_repository(tmp_path / "app")
    started = tmp_path / "started"
    program = wrapped(tmp_path / "opencode", f'echo $$ >> {started}\nreal "$@"')
    other = tmp_path / "other-state"
    other.mkdir()
    benches = [
        AgentLauncher(folder, home, Spawner(new_id()), opencode=program) for folder in (state, state, other, other)
    ]
    agents = await asyncio.gather(*(start_agent(one.spawner, one.launch(app)) for one in benches))
    try:
        assert all(agent.is_alive for agent in agents)
        assert len(started.read_text().split()) == 4, "one of them had to be started twice"
        assert len({agent.port for agent in agents}) == 4
    finally:
        await asyncio.gather(*(agent.stop() for agent in agents))


async def test_two_agents_have_two_passwords_and_the_version_is_the_pinned_one(
    launcher: AgentLauncher, tmp_path: Path
) -> None:
    app = make_repository(tmp_path / "app")
    assert launcher.launch(app).password != launcher.launch(app).password
    async with launcher.agent(app) as (_, api):
        assert (await api.ask("GET", "/global/health"))["version"] == PINNED_VERSION
