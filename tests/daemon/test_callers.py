"""A process that Rookery started has exactly the rights of its workspace's token, on every connection."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import aiohttp
import click
import pytest

import rookery as sdk
from rookery.system.fs.lock import is_held
from rookery.system.fs.paths import lock_file
from rookery.system.ids import project_id
from rookery.system.process.table import MARKER
from tests.support.cli.commands import commands
from tests.support.cli.user import user
from tests.support.daemon.jobs import PROGRAM, Job, JobRunner, as_child, command, program, refused, start_job_runner
from tests.support.daemon.process import SECONDS, Daemon, kill, rookery, up
from tests.support.daemon.socketio import editor
from tests.support.mcp.caller import Caller, told
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = pytest.mark.anyio

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


# ---- its endpoints. Every route is tried by a real agent, in tests/e2e/test_agent_rights.py


@requirement("ws.agent.principal")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_the_endpoints_of_its_own_workspace_are_open_to_it_and_of_no_other(loop: str) -> None:
    async with start_job_runner(f"daemon.loop={loop}") as inside:
        own, other = (f"/w/{inside.project}/{name}" for name in ("fix", "other"))
        header = {"X-Workspace-Path": str(inside.other)}
        ways: list[tuple[str, dict[str, str], int]] = [
            ("/mcp", {}, 200),
            (f"{own}/mcp", {}, 200),
            (f"{other}/mcp", {}, 403),
            ("/mcp", header, 403),
        ]
        ways += [(f"/w/{inside.project}/@main/mcp", {}, 403), ("/w/nowhere/fix/mcp", {}, 403)]
        jobs = [inside.request("POST", path, HELLO, **ACCEPT, **more) for path, more, _ in ways]
        jobs += [inside.request("GET", f"{place}/sse", **ACCEPT) for place in ("", own, other)]
        answers = await inside.run(*jobs)
        assert [one["status"] for one in answers] == [*(status for *_, status in ways), 200, 200, 403]


# ---- the owner, with a sandbox


@requirement("guard.sandbox.owner")
async def test_with_confined_agents_the_socket_wants_the_owners_token() -> None:
    daemon = up(env={"ROOKERY_AGENTS_SANDBOX": "workspace"})
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(daemon.runtime["socket"])) as http:
        for sent, status in (({}, 401), ({"Authorization": "Bearer wrong"}, 401), (bearer(daemon.token), 200)):
            async with http.get("http://rookery/api/status", headers=sent) as answer:
                assert answer.status == status
        async with http.get("http://rookery/api/health") as answer:
            assert answer.status == 200
    # The command line and the Python client read it from its file.
    assert rookery("status").returncode == 0
    async with sdk.connect() as connected:
        assert await connected.workspaces.list() == []
    token = Path(daemon.runtime["token_file"])
    kept = token.read_bytes()
    token.unlink()
    refused = rookery("status")
    assert refused.returncode == 4 and "token" in refused.stderr
    token.write_bytes(kept)
    assert rookery("down").returncode == 0


@requirement("guard.sandbox.owner")
@pytest.mark.parametrize(
    "setting",
    [{}, {"ROOKERY_SANDBOX_UNIX_SOCKETS": "true"}, {"ROOKERY_SERVERS_SANDBOX": "read-only"}],
    ids=["a-command", "unix-sockets", "servers"],
)
async def test_once_anything_is_confined_nobody_is_the_owner_without_a_token(
    tmp_path: Path, setting: dict[str, str]
) -> None:
    app = make_repository(tmp_path / "app")
    daemon = await asyncio.to_thread(up, "--set=auth=loopback", env=setting)
    try:
        for words in (("project", "add", str(app)), ("ws", "create", "fix")):
            assert (await asyncio.to_thread(user, *words, cwd=app)).returncode == 0
        endpoint = f"{daemon.runtime['url']}/w/{project_id(app)}/fix/mcp"

        async def ask() -> tuple[int, int]:
            """Return how the socket and the port answer somebody without a token."""
            async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(daemon.runtime["socket"])) as http:
                by_socket = (await http.get("http://rookery/api/status")).status
            async with aiohttp.ClientSession() as http:
                return by_socket, (await http.post(endpoint, json=HELLO, headers=ACCEPT)).status

        if not setting:
            assert await ask() == (200, 200)
            confined = await asyncio.to_thread(user, "ws", "exec", "--sandbox", "fix", "--", "true", cwd=app)
            assert confined.returncode == 0, confined.stderr
        assert await ask() == (401, 401)
        assert (await asyncio.to_thread(user, "ws", "list", cwd=app)).returncode == 0
    finally:
        assert (await asyncio.to_thread(rookery, "down")).returncode == 0


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# ---- every command


# What its arguments are, where a word does not do.
WORDS: dict[str, list[str]] = {
    "boulder on": ["--workspace", "other"],
    "boulder off": ["--workspace", "other"],
    "client install": ["cursor"],
    "config set": ["auth", "loopback"],
    "mcp add": ["mine", "--", "true"],
    "mcp add-json": ["mine", '{"command": "true"}'],
    "session answer": ["per_any", "once"],
    "session new": ["other"],
    "session wait": ["ses_any", "--message", "any"],
    "ws exec": ["other", "--", "true"],
    "guard trust": ["other", "--additions"],
    "ws rm": ["other", "--force"],
    "ws trash purge": ["--all", "--yes"],
}
# They ask their user something, and want a terminal first.
AT_A_TERMINAL = {"agent login", "agent attach", "guard approve"}
# What asks no daemon for anything and changes nothing: the exit code, and the words.
HARMLESS: dict[str, tuple[int, list[str]]] = {
    "bridge": (0, []),
    "client print": (0, ["claude-desktop", "--transport", "bridge"]),
    "completion": (0, ["bash"]),
    "config get": (0, ["auth"]),
    "config path": (0, []),
    "config show": (0, []),
    # Another Rookery, in a folder of its own; that is tested elsewhere.
    "demo": (0, ["--help"]),
    "doctor": (0, ["--help"]),
    # A model of its own, which serves what it is given.
    "model env": (3, ["nowhere.json"]),
    "model serve": (3, ["nowhere.json"]),
}


def words_of(name: str, command: click.Command) -> list[str]:
    if name in WORDS:
        return WORDS[name]
    return ["other" for one in command.params if isinstance(one, click.Argument) and one.nargs == 1 and one.required]


@requirement("ws.agent.principal", "ws.agent.may-not")
@pytest.mark.timeout(600)
async def test_every_command_is_refused_to_what_rookery_started() -> None:
    async with start_job_runner() as inside:
        jobs: dict[str, Job] = {}
        for names, one in commands():
            name = " ".join(names)
            given = HARMLESS[name][1] if name in HARMLESS else words_of(name, one)
            jobs[name] = command(*names, *given, cwd=inside.other, terminal=name in AT_A_TERMINAL)
        assert jobs.keys() >= {*WORDS, *AT_A_TERMINAL, *HARMLESS} and len(jobs) > 80
        before = {
            path: path.read_bytes() for path in Path.home().rglob("*") if path.is_file() and ".git" not in str(path)
        }
        results = dict(zip(jobs, await inside.run(*jobs.values()), strict=True))
        let_through = {name: one for name, one in results.items() if name not in HARMLESS and not refused(one)}
        assert let_through == {}
        assert {name: results[name]["code"] for name in HARMLESS} == {
            name: code for name, (code, _) in HARMLESS.items()
        }
        after = {
            path: path.read_bytes() for path in Path.home().rglob("*") if path.is_file() and ".git" not in str(path)
        }
        assert after == before
        assert inside.daemon.refresh().http("GET", "/api/status").json()["daemon"]["pid"] == inside.daemon.pid
        assert await inside.names() == ["@main", "fix", "other"]


# ---- each act that is the user's, over each way


def acts(inside: JobRunner) -> dict[str, tuple[Job, Job]]:
    """Each as a command and as a request."""
    other = f"/api/workspaces/{inside.project}/other"
    return {
        "stop the daemon": (command("down"), inside.request("POST", "/api/daemon/stop", {})),
        "delete": (
            command("ws", "rm", "other", "--force", cwd=inside.app),
            inside.request("DELETE", f"{other}?force=1"),
        ),
        "close": (command("ws", "close", "other", cwd=inside.app), inside.request("POST", f"{other}/close", {})),
        "restore": (
            command("ws", "restore", "gone", cwd=inside.app),
            inside.request("POST", "/api/trash/gone/restore", {}),
        ),
        "purge": (
            command("ws", "trash", "purge", "--all", "--yes"),
            inside.request("DELETE", "/api/trash"),
        ),
        "remove a project": (
            command("project", "remove", inside.project),
            inside.request("DELETE", f"/api/projects/{inside.project}"),
        ),
        "change settings": (
            command("config", "set", "notify.command", "touch /tmp/x"),
            inside.request("POST", "/api/daemon/reload", {}),
        ),
        "stop agents": (
            command("agent", "stop", "other", cwd=inside.app),
            inside.request("POST", f"{other}/agent/stop", {}),
        ),
        "restart agents": (
            command("agent", "restart", "other", cwd=inside.app),
            inside.request("POST", f"{other}/agent/restart", {}),
        ),
        "learn a token": (command("ws", "token", "other", cwd=inside.app), inside.request("GET", f"{other}/token")),
    }


async def is_as_before(inside: JobRunner) -> None:
    """Nothing was done: the daemon runs, both workspaces are open, one is in the trash, and no setting was written."""
    shown = inside.daemon.http("GET", "/api/status").json()
    assert shown["daemon"]["instance"] == inside.daemon.runtime["instance"]
    assert {one["name"]: one["open"] for one in shown["workspaces"] if not one["main"]} == {"fix": True, "other": True}
    trashed = json.loads(user("ws", "trash", "list", "--json", cwd=inside.app).stdout)
    assert [one["name"] for one in trashed] == ["gone"]
    assert not (Path.home() / ".config" / "rookery" / "config.toml").exists()


@requirement("ws.agent.may-not")
@pytest.mark.timeout(300)
async def test_c23_what_is_the_users_is_refused_as_a_command_and_on_every_way() -> None:
    async with start_job_runner() as inside:
        for words in (("create", "gone"), ("rm", "gone")):
            assert user("ws", *words, cwd=inside.app).returncode == 0
        bearer = {"Authorization": f"Bearer {inside.token('fix')}"}
        asked = acts(inside)
        assert all(refused(one) for one in await inside.run(*(first for first, _ in asked.values())))
        requests = [second for _, second in asked.values()]
        by_token = [
            inside.to_port(*one["request"][:3], **bearer, **cast("dict[str, str]", one["request"][3]))
            for one in requests
        ]
        assert {one["status"] for one in await inside.run(*requests, *by_token)} == {403}
        await is_as_before(inside)

        # Over MCP and Socket.IO, with its token and without one over the socket.
        url = inside.daemon.runtime["url"]
        for path, more in ((f"/w/{inside.project}/other/mcp", {}), ("/mcp", {"X-Workspace-Path": str(inside.other)})):
            sent = inside.to_port("POST", path, HELLO, **ACCEPT, **bearer, **more)
            over = inside.request("POST", path, HELLO, **ACCEPT, **more)
            assert [one["status"] for one in await inside.run(sent, over)] == [403, 403]
        caller = Caller(inside.http, f"{url}/mcp", headers=bearer)
        assert [one["name"] for one in told(await caller.call("workspace_list"))] == ["@main", "fix", "other"]
        async with editor(url, inside.token("fix")) as ours:
            for event, given in (("delete", {"force": True}), ("setMetadata", {"key": "a", "value": "b"})):
                assert await ours.code(event, {"workspacePath": str(inside.other), **given}) == "forbidden"
        tried = await inside.run(
            program(sys.executable, "-c", EVENTS, inside.daemon.runtime["socket"], str(inside.other))
        )
        assert tried[0]["out"].strip() == "forbidden", tried
        await is_as_before(inside)


# Deletes a workspace over Socket.IO on the Unix socket.
EVENTS = """
import asyncio, sys, aiohttp, socketio

async def main():
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(sys.argv[1])) as http:
        client = socketio.AsyncClient(http_session=http)
        await client.connect("http://here", transports=["websocket"])
        told = await client.call("api:workspace:delete", {"workspacePath": sys.argv[2], "force": True})
        print(told["error"]["code"] if not told["success"] else "deleted")
        await client.disconnect()

asyncio.run(main())
"""


@requirement("ws.agent.may-not", "ws.agent.principal")
@pytest.mark.timeout(300)
async def test_its_own_workspace_it_may_delete_over_the_bridge() -> None:
    async with start_job_runner() as inside:
        call = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "workspace_delete", "arguments": {"force": True}},
        }
        said = [HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"}, call]
        lines = "".join(f"{json.dumps(one)}\n" for one in said)
        shell = ["sh", "-c", 'printf %s "$1" | "$2" bridge --workspace "$3"', "sh", lines, *command()["argv"]]
        (other,) = await inside.run(program(*shell, f"{inside.project}/other"))
        assert "was started by Rookery for another workspace" in other["out"], other
        assert await inside.names() == ["@main", "fix", "other"]
        async with editor(inside.daemon.runtime["url"], inside.daemon.token) as ours:
            await inside.run(program(*shell, f"{inside.project}/fix"))
            assert (await ours.heard("workspace:deleted"))["name"] == "fix"
        assert await inside.names() == ["@main", "other"]


# ---- whom a process works for

# Leaves its parent, which ends, and its marker; then becomes the command.
ORPHAN = f"""
import os, sys
heard, told = os.pipe()
if os.fork():
    os._exit(0)
os.close(told)
os.read(heard, 1)
os.environ.pop("{MARKER}")
os.execv(sys.argv[1], sys.argv[1:])
"""


@requirement("ws.agent.principal")
@pytest.mark.timeout(300)
async def test_c23_a_process_is_known_by_those_above_it_and_by_its_session() -> None:
    async with start_job_runner() as inside:
        argv = [*command()["argv"], "status", "--no-start"]
        forged = f"{MARKER}={inside.daemon.runtime['instance']}.1.user"
        known, nobody = f"for the workspace at {inside.fix}", "works for no workspace"
        for before, said in (
            ([], known),
            (["env", "-u", MARKER], known),
            (["env", "-i", *(f"{name}={os.environ[name]}" for name in ("HOME", "ROOKERY_HOME"))], known),
            (["setsid", "-w"], known),
            ([sys.executable, "-c", ORPHAN], known),
            (["env", forged], nobody),
            (["env", f"{MARKER}={inside.daemon.runtime['instance']}.99"], nobody),
        ):
            (result,) = await inside.run(program(*before, *argv))
            assert "was started by Rookery" in result["err"] and said in result["err"], (before, result)
            assert result["out"] == "", before


@requirement("ws.agent.principal")
async def test_a_shared_server_has_no_rights_and_one_of_a_workspace_has_its() -> None:
    async with start_job_runner() as inside:
        folder = inside.daemon.state.parent
        bodies: dict[str, str] = {}
        for scope in ("app", "project", "workspace"):
            jobs, results = folder / f"{scope}.json", folder / f"{scope}-results.json"
            jobs.write_text(json.dumps([inside.request("GET", "/api/health"), inside.request("GET", "/api/status")]))
            config = {"command": [sys.executable, "-P", str(PROGRAM), str(jobs), str(results)], "scope": scope}
            # It speaks no MCP, and has done its work when that is noticed; it is tried when it is added, too.
            assert user("mcp", "add-json", scope, json.dumps(config), "--global", cwd=inside.fix).returncode == 1
            results.unlink()
            assert user("mcp", "connect", scope, cwd=inside.fix).returncode != 0
            health, status = json.loads(results.read_text())
            assert (health["status"], status["status"]) == (200, 403)
            bodies[scope] = status["body"]
        assert "works for no workspace" in bodies["app"] and "works for no workspace" in bodies["project"]
        assert f"for the workspace at {inside.fix}" in bodies["workspace"]


@requirement("ws.agent.principal")
async def test_the_python_client_has_no_more_rights_than_the_command_line() -> None:
    script = """
import asyncio, rookery
from rookery import RookeryError

async def main():
    async with rookery.connect(start=True) as r:
        for ask in (r.status, r.workspaces.list, r.projects.list):
            try:
                await ask()
            except RookeryError as error:
                print(error.code)

asyncio.run(main())
"""
    async with start_job_runner() as inside:
        (result,) = await inside.run(program(sys.executable, "-c", script))
        assert result["out"].split() == ["forbidden"] * 3, result


@requirement("ws.agent.principal")
@pytest.mark.timeout(300)
async def test_a_rookery_inside_an_agent_with_a_folder_of_its_own_has_its_own_owner() -> None:
    async with start_job_runner() as inside:
        home = {"ROOKERY_HOME": str(inside.daemon.state.parent / "nested")}
        words = (("up", "-d"), ("status",), ("config", "set", "log.level", "debug"), ("down",))
        jobs = [command(*one, cwd=inside.fix) for one in words]
        for job in jobs:
            job["env"] = job["env"] | home | {"XDG_CONFIG_HOME": str(inside.daemon.state.parent / "nested-config")}
        results = await inside.run(*jobs)
        assert [one["code"] for one in results] == [0, 0, 0, 0], results
        assert refused((await inside.run(command("down")))[0])


async def test_a_process_of_the_user_is_the_owner_whatever_its_environment() -> None:
    """Also with none at all, and below another Rookery, as these tests are."""
    async with start_job_runner() as inside:
        jobs, results = (inside.daemon.state.parent / name for name in ("user.json", "user-results.json"))
        jobs.write_text(json.dumps([inside.request("GET", "/api/status")]))
        for env in ({}, {MARKER: "another.1"}, {MARKER: "another.1.user:more.2"}):
            argv = [sys.executable, "-P", str(PROGRAM), str(jobs), str(results)]
            await asyncio.to_thread(subprocess.run, argv, env=env, check=True, timeout=SECONDS)
            assert json.loads(results.read_text())[0]["status"] == 200


# ---- where no daemon answers


@requirement("ws.agent.may-not")
def test_d07_a_leftover_starts_no_daemon_and_has_no_rights_at_the_next_one(state: Path) -> None:
    daemon = up()
    marked = as_child(daemon)
    kill(daemon.pid)
    for words in (("up", "-d"), ("up",), ("status",), ("ws", "list"), ("config", "set", "auth", "loopback")):
        done = rookery(*words, env=marked)
        assert done.returncode == 4 and "was started by Rookery" in done.stderr, (words, done)
    assert not is_held(lock_file(state)) and rookery("status", "--no-start").returncode == 5
    assert rookery("up", "-d").returncode == 0
    done = rookery("status", env=marked)
    assert done.returncode == 4 and "works for no workspace" in done.stderr
    assert rookery("down", env=marked).returncode == 4
    assert rookery("down").returncode == 0


@requirement("ws.agent.may-not")
def test_a_daemon_that_does_not_answer_is_not_signalled_by_what_it_started(daemon: Daemon) -> None:
    files = [lock_file(daemon.state), Path(daemon.runtime["socket"])]
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        silent = rookery("down", "--timeout", "1", env=as_child(daemon))
        # Nor one that has lost its lock and its socket, and is known by its pid alone.
        for path in files:
            path.rename(path.with_suffix(".aside"))
        lost = rookery("down", "--timeout", "1", env=as_child(daemon))
        for path in files:
            path.with_suffix(".aside").rename(path)
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    for done in (silent, lost):
        assert done.returncode == 4 and "was started by Rookery" in done.stderr, done
    assert daemon.http("GET", "/api/health", token=None).status == 200
