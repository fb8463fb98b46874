"""`rookery agent`, with the real daemon, the real OpenCode and the scripted model."""

import asyncio
import json
import os
import shlex
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import click
import psutil
import pytest

from rookery.cli.agent.group import COMMANDS, agent as group
from rookery.system.process.table import MARKER
from tests.support.agents.launch import config_with
from tests.support.cli.user import TerminalUser, at_a_terminal
from tests.support.cli.workspaces import app, made
from tests.support.daemon.endpoints import listens
from tests.support.daemon.process import ROOKERY, Daemon, alive, rookery
from tests.support.daemon.system import LIMIT, FullSystem, place_of, start_system
from tests.support.mcp.caller import ERAS, Caller
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = [pytest.mark.anyio, requirement("agent.cli.verbs"), pytest.mark.timeout(300)]

SCRIPT = {"turn": [{"when": "hello", "step": [{"say": "Good morning."}]}]}
LISTENING = "opencode server listening"


def test_the_summaries_in_the_lazy_table_are_those_of_the_commands() -> None:
    for name, (_, text) in COMMANDS.items():
        command = group.get_command(click.Context(group), name)
        assert command is not None and command.help is not None
        assert command.help.partition("\n")[0] == text


async def answers(system: FullSystem, *words: str, cwd: Path, code: int = 0) -> str:
    """What the command says on stdout; that it ends with `code` is seen to."""
    done = await system.cli("agent", *words, cwd=cwd)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout


async def test_an_agent_is_started_shown_followed_restarted_on_its_port_and_stopped(tmp_path: Path) -> None:
    checkout = make_repository(tmp_path / "app")
    async with start_system(SCRIPT, checkout) as system:
        folder = Path((await system.create("fix"))["path"])
        done = await system.cli("agent", "start", "fix", cwd=checkout)
        assert done.returncode == 0 and "starting OpenCode ..." in done.stderr, done.stderr
        shown = json.loads(await answers(system, "show", "--json", cwd=folder))
        port, pid = shown["port"], shown["pid"]
        assert done.stdout == f"the agent of fix is running on port {port}\n"

        listed = json.loads(await answers(system, "list", "--json", cwd=checkout))
        found = [(each["name"], each["state"], each["port"]) for each in listed]
        assert found == [("@main", "stopped", None), ("fix", "running", port)]
        table = (await answers(system, "list", cwd=checkout)).splitlines()
        assert table[0].split() == ["NAME", "STATE", "DOES", "PORT", "PID", "NEEDS", "YOU"]
        assert table[2].split() == ["fix", "running", str(port), str(pid)]

        async with following(system, "fix", cwd=checkout) as lines:
            assert LISTENING in await until(lines, LISTENING)
            told = await answers(system, "restart", cwd=folder)
            assert told == f"the agent of fix is running on port {port}\n"
            assert LISTENING in await until(lines, LISTENING)
        now = await answers(system, "show", "fix", cwd=checkout)
        assert f"  port   {port}\n" in now and f"  pid    {pid}" not in now

        assert await answers(system, "resume", "fix", cwd=checkout) == "no turn was interrupted in fix\n"
        assert await answers(system, "stop", "fix", cwd=checkout) == "the agent of fix is stopped\n"
        done = await system.cli("session", "messages", "fix", cwd=checkout)
        remedy = "start it: rookery agent start fix; or start one: rookery session new fix"
        told = f"rookery: fix has no open session: its agent is stopped ({remedy})\n"
        assert (done.returncode, done.stderr) == (3, told)
        listed = await system.cli("session", "list", cwd=checkout)
        assert listed.stdout == "no running agent has an open session: rookery session new NAME\n"
        kept = json.loads(await answers(system, "logs", "fix", "--json", cwd=checkout))
        assert len([line for line in kept["lines"] if LISTENING in line]) == 2
        assert (await answers(system, "logs", "fix", "-n", "1", cwd=checkout)).count("\n") == 1


@asynccontextmanager
async def following(system: FullSystem, name: str, cwd: Path) -> AsyncGenerator[asyncio.StreamReader]:
    """What `rookery agent logs -f` prints, until the end of the block."""
    command = [str(ROOKERY), "agent", "logs", "-f", "-n", "10000", name]
    child = await asyncio.create_subprocess_exec(
        *command, env=os.environ | dict(system.env), cwd=cwd, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        yield child.stdout
    finally:
        child.kill()
        await child.wait()


async def until(lines: asyncio.StreamReader, wanted: str) -> str:
    async with asyncio.timeout(LIMIT):
        while line := (await lines.readline()).decode():
            if wanted in line:
                return line
    raise AssertionError(f"it ended without {wanted!r}")


@requirement("agent.crash.interrupted", "ws.attention.failed")
async def test_a_turn_that_is_cut_off_is_shown_taken_up_again_and_seen_in_the_interface(tmp_path: Path) -> None:
    # A repository's plugins for the interface are code that nobody has approved. A theme in this file is something
    # that the interface would move to another one.
    spy = f'import {{ writeFileSync }} from "fs"; writeFileSync({json.dumps(str(tmp_path / "ran"))}, "");'
    files = {"tui.json": '{"plugin": ["./spy.js"]}', "spy.js": spy + " export default { id: 'spy', tui() {} };"}
    files["opencode.json"] = config_with(theme="nord")
    checkout = make_repository(tmp_path / "app", files)
    script = {
        "turn": [
            {"when": "hello", "step": [{"say": "Never said.", "hold": "for ever"}]},
            {"when": "cut off", "step": [{"say": "On I go."}]},
            {"when": "more", "step": [{"say": "Once again."}]},
        ]
    }
    async with start_system(script, checkout) as system:
        one = await system.create("fix", prompt="hello")
        await system.asked(lambda record: record.turn == 1)
        await system.until(one, lambda now: now["status"]["agent"]["type"] == "busy")
        await answers(system, "restart", "fix", cwd=checkout)
        await system.until(one, lambda now: "interrupted" in [each["reason"] for each in now["attention"]])
        assert "rookery agent resume" in await answers(system, "list", cwd=checkout)
        assert await answers(system, "resume", "fix", cwd=checkout) == "resumed 1 session in fix\n"
        await system.asked(lambda record: record.turn == 2 and record.ended == "answered")
        await system.until(one, lambda now: not now["attention"])

        def types_a_prompt(person: TerminalUser) -> None:
            person.types("more")
            person.reads("more", LIMIT)
            person.types("\r")
            person.reads("Once again.", LIMIT)
            ended = system.until(one, lambda now: now["activity"] == "finished")
            asyncio.run_coroutine_threadsafe(ended, loop).result(LIMIT)

        # What finished while the interface was open was seen.
        loop = asyncio.get_running_loop()
        look = asyncio.to_thread(looked_at, "On I go.", Path(one["path"]), system.env, meanwhile=types_a_prompt)
        assert await look == 0
        assert (await system.show(one))["activity"] == "idle"
        assert not (tmp_path / "ran").exists()
        assert git(Path(one["path"]), "status", "--porcelain") == ""
        assert (await system.show(one))["agent"]["state"] == "running"
        code, told = await asyncio.to_thread(refused, checkout, system.env, "fix", "--session", "ses_ofanother")
        assert code == 3 and "ses_ofanother" in told


async def test_attach_leaves_nothing_in_a_home_that_is_not_the_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of whoever looks at the demo's agents, which have a home of their own."""
    monkeypatch.setenv("ROOKERY_AGENTS_START_SECONDS", "300")
    checkout = make_repository(tmp_path / "app")
    async with start_system(SCRIPT, checkout) as system:
        one = await system.create("fix")
        home = tmp_path / "another home"
        (home / "state").mkdir(parents=True)
        elsewhere = {**system.env, "HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
        assert await asyncio.to_thread(looked_at, "commands", Path(one["path"]), elsewhere) == 0
        assert [*home.rglob("*")] == [home / "state"]


def looked_at(
    wanted: str, folder: Path, env: Mapping[str, str], meanwhile: Callable[[TerminalUser], None] = lambda person: None
) -> int:
    """Attaches until `wanted` is on the screen, looks for the password, and leaves with the interface's own key."""
    command = 'stty rows 40 cols 120; exec "$0" agent attach'
    with at_a_terminal(argv=["sh", "-c", command, str(ROOKERY)], cwd=folder, env=env) as person:
        person.reads(wanted, LIMIT)
        here = [each for each in psutil.process_iter() if in_session(each.pid, person.shell)]
        [interface] = [each for each in here if each.name() == "opencode" and "attach" in each.cmdline()]
        password = interface.environ()["OPENCODE_SERVER_PASSWORD"]
        assert len(password) > 20 and not [each for each in here if password in " ".join(each.cmdline())]
        meanwhile(person)
        person.types("\x03")
        return person.ends()


def refused(folder: Path, env: Mapping[str, str], *words: str) -> tuple[int, str]:
    with at_a_terminal("agent", "attach", *words, cwd=folder, env=env) as person:
        return person.ends(), person.text


def in_session(pid: int, leader: int) -> bool:
    with suppress(ProcessLookupError):
        return os.getsid(pid) == leader
    return False


@requirement("agent.sleep.wake", "ws.endpoint.stop")
async def test_one_that_sleeps_keeps_its_mcp_port_and_closing_its_workspace_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOKERY_AGENTS_IDLE_SECONDS", "1")
    checkout = make_repository(tmp_path / "app")
    async with start_system(SCRIPT, checkout) as system:
        one = await system.create("fix")
        await answers(system, "start", "fix", cwd=checkout)
        await system.until(one, lambda now: now["agent"]["state"] == "asleep")
        shown = (await system.cli("ws", "list", cwd=checkout)).stdout.splitlines()
        assert shown[2].split() == ["fix", "fix", "ready", "asleep"]
        asleep = (await system.show(one))["mcp"]
        assert asleep["server_running"] and (asleep["port"], asleep["url"]) == (one["mcp"]["port"], one["mcp"]["url"])
        assert listens(system.daemon.pid, asleep["port"])
        headers = {"Authorization": f"Bearer {system.daemon.token}"}
        async with aiohttp.ClientSession() as http:
            caller = Caller(http, asleep["url"], ERAS[1], headers=headers, limit=LIMIT)
            status = (await caller.call("workspace_get_status"))["result"]["structuredContent"]
            assert status["isDirty"] is False
            assert (await system.show(one))["agent"]["state"] == "asleep"
            # This one needs it.
            found = await caller.call("workspace_get_opencode_port")
        started = json.loads(await answers(system, "start", "fix", "--json", cwd=checkout))
        assert found["result"]["structuredContent"]["result"] == started["port"]
        closed = await system.cli("ws", "close", "fix", cwd=checkout)
        assert closed.returncode == 0, closed.stderr
        assert not alive(started["pid"]) and not listens(system.daemon.pid, asleep["port"])
        after = await system.show(one)
        assert (after["agent"]["state"], after["mcp"]["server_running"]) == ("stopped", False)


def test_without_a_daemon_or_a_workspace_that_is_said(tmp_path: Path) -> None:
    done = rookery("agent", "list", "--no-start")
    assert done.returncode == 5 and "rookery up -d" in done.stderr


def test_one_that_does_not_run_is_told_as_it_is(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    made("fix", cwd=checkout)
    shown = rookery("agent", "show", "fix", cwd=checkout)
    assert (shown.returncode, shown.stdout) == (0, "fix\n  state  stopped\n")
    missing = rookery("agent", "show", "fox", cwd=checkout)
    assert missing.returncode == 3 and "did you mean fix?" in missing.stderr
    empty = rookery("agent", "logs", "fix", cwd=checkout)
    assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", "the agent has printed nothing yet\n")
    nobody = rookery("agent", "attach", "fix", cwd=checkout)
    assert nobody.returncode == 2 and "terminal" in nobody.stderr


@requirement("ws.port.get", "ws.tools.more")
async def test_the_port_of_an_agent_opens_to_its_user_with_the_password(tmp_path: Path) -> None:
    checkout = make_repository(tmp_path / "app")
    async with start_system(SCRIPT, checkout) as system, aiohttp.ClientSession() as http:
        workspace = await system.create("fix")
        folder = Path(workspace["path"])
        shown = json.loads(await answers(system, "start", "fix", "--json", cwd=checkout))
        headers = {"Authorization": f"Bearer {system.daemon.token}", "X-Workspace-Path": str(folder)}
        caller = Caller(http, f"{system.daemon.runtime['url']}/mcp", ERAS[0], headers=headers, limit=LIMIT)
        await caller.open()
        tools = {each["name"]: each["description"] for each in await caller.listed("tools")}
        for tool in ("workspace_get_opencode_port", "workspace_get_agent_session"):
            assert "rookery agent password" in tools[tool]
        found = await caller.call("workspace_get_opencode_port")
        session = (await caller.call("workspace_get_agent_session"))["result"]["structuredContent"]
        again = (await caller.call("workspace_restart_agent"))["result"]["structuredContent"]
        await caller.close()
        port = found["result"]["structuredContent"]["result"]
        assert again == {"result": port} and (session == {"result": None} or session["port"] == port)
        assert (await system.show(workspace))["agent"]["pid"] != shown["pid"]
        assert port == shown["port"] and json.loads(found["result"]["content"][0]["text"]) == port

        password = (await asyncio.to_thread(_as_its_user, system, checkout, "password", "fix")).strip()
        access = json.loads(await asyncio.to_thread(_as_its_user, system, folder, "password", "--json"))
        assert access == {"url": f"http://127.0.0.1:{port}", "username": "opencode", "password": password}
        signed = {"Authorization": aiohttp.encode_basic_auth("opencode", password)}
        for sent, wanted in (({}, 401), (signed, 200)):
            async with http.get(f"http://127.0.0.1:{port}/session", headers=sent) as answer:
                assert answer.status == wanted
        # Tests, like agents, run as processes that Rookery started.
        assert os.environ[MARKER]
        refused = await system.cli("agent", "password", "fix", cwd=checkout)
        assert refused.returncode == 4 and password not in refused.stdout + refused.stderr
        assert (await asyncio.to_thread(system.daemon.http, "GET", f"{place_of(workspace)}/agent/attach")).status == 403


def _as_its_user(system: FullSystem, cwd: Path, *words: str) -> str:
    """What the command prints for a person, whom Rookery did not start, with its output sent to a file."""
    printed = cwd.parent / "printed"
    command = f'exec "$0" agent {shlex.join(words)} > {shlex.quote(str(printed))}'
    with at_a_terminal(argv=["sh", "-c", command, str(ROOKERY)], cwd=cwd, env=system.env) as person:
        assert person.ends() == 0, person.text
    return printed.read_text()
