"""The servers that the files of a directory define: which run, with which environment, and after approval."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rookery.agents.opencode.release import PINNED_VERSION, detect_machine, find_release
from rookery.guard import server as definitions
from rookery.system.fs import paths
from rookery.system.ids import new_id
from rookery.system.process.environment import EnvironmentFilter
from rookery.system.process.spawn import Spawner
from rookery.system.process.table import MARKER
from rookery.upstreams.config.definition import Definition
from rookery.upstreams.connect import Connector
from rookery.upstreams.hub import Hub
from rookery.upstreams.oauth.manager import SignInManager
from rookery.upstreams.pool import ServerPool
from rookery.wire.http_client.proxy import ProxySettings
from tests.support.gateway.gateway import Gateway, checkout, start_gateway, view_of, write
from tests.support.mcp.caller import told, words
from tests.support.mcp.scripted_server import Message, ScriptedServers, ServerScript, all_of
from tests.support.npm import mcp_servers as npm_servers
from tests.support.npm.packages import SECONDS
from tests.support.opencode import process as opencode
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


async def approve(gateway: Gateway, folder: Path) -> int:
    """As a person does who has looked at all that waits there; how many it was."""
    waiting = [one for one in await gateway.service.list_waiting() if one.place == str(folder.resolve())]
    for subject in waiting:
        await gateway.approvals.approve(subject, subject.digest)
        await gateway.service.on_approvals_changed(subject.key)
    return len(waiting)


# ---- the environment


@requirement("hub.child.env")
async def test_c18_a_child_sees_the_allow_list_and_what_it_was_given_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "ROOKERY_TOKEN", "SSH_AUTH_SOCK", "X"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("MINE", "value")
    given = {"GIVEN": "{env:MINE}", "PATH": os.environ["PATH"]}
    async with start_gateway(lambda scripted: scripted.servers("one", environment=given)) as gateway:
        await (await gateway.caller()).tools()
        (one,) = gateway.scripted.of("one")
        allowed = {"HOME", "LOGNAME", "USER", "SHELL", "PATH", "TMPDIR", "TERM", "LANG", "TZ", "LC_ALL", "LC_CTYPE"}
        assert "secret" not in one.env.values()
        assert set(one.env) - allowed - {"GIVEN", MARKER, "COLORTERM", "LANGUAGE"} <= {
            name for name in one.env if name.startswith(("XDG_", "SSL_", "NODE_EXTRA"))
        }
        assert one.env["GIVEN"] == "value" and one.env["HOME"] == os.environ["HOME"]


@requirement("hub.child.env")
async def test_c18_a_child_that_inherits_sees_all_but_what_is_the_daemons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "chosen")
    monkeypatch.setenv("ROOKERY_TOKEN", "the daemon's")
    async with start_gateway(lambda scripted: scripted.servers("one", inherit=True, environment={"X": "1"})) as gateway:
        await (await gateway.caller()).tools()
        (one,) = gateway.scripted.of("one")
        assert one.env["OPENAI_API_KEY"] == "chosen" and one.env["X"] == "1"
        assert "ROOKERY_TOKEN" not in one.env


@requirement("hub.child.bun")
async def test_a_server_whose_command_is_opencode_is_told_to_be_bun() -> None:
    async with start_gateway() as gateway:
        folder = Path.home() / "bin"
        folder.mkdir()
        command = gateway.scripted.server("one")["command"]
        (folder / "opencode").write_text(f'#!/bin/sh\nexec {" ".join(command[:-1])} "$@"\n')
        (folder / "opencode").chmod(0o755)
        named = {"PATH": f"{folder}:{os.environ['PATH']}"}
        servers = {
            "by-path": {"command": [str(folder / "opencode"), "by-path"]},
            "by-name": {"command": ["opencode", "by-name"], "environment": named},
            "given": {"command": [str(folder / "opencode"), "given"], "environment": {"BUN_BE_BUN": "0"}},
        }
        write({**servers, "other": gateway.scripted.server("other")})
        await (await gateway.caller()).tools()
        bun = {one.name: one.env.get("BUN_BE_BUN") for one in gateway.scripted.all}
        assert bun == {"by-path": "1", "by-name": "1", "given": "0", "other": None}


# As it stands in the analysis of OpenCode's client, "Example Configuration".
EXAMPLE = """{
  "mcp": {
    "filesystem": {
      "type": "local",
      "command": ["opencode", "x", "@modelcontextprotocol/server-filesystem"],
      "timeout": 5000
    },
    "remote-api": {
      "type": "remote",
      "url": "https://example.com/mcp",
      "headers": { "Authorization": "Bearer token" },
      "timeout": 10000
    }
  }
}
"""


def install_opencode() -> None:
    """Put the real OpenCode where Rookery installs it."""
    here = opencode.installed()
    modules = here.opencode.parents[2]
    release = find_release(PINNED_VERSION, detect_machine())
    root = paths.ensure_private_folder(paths.state_folder()) / "opencode" / "releases" / release.folder
    root.mkdir(parents=True)
    (root / "node_modules").symlink_to(modules)
    sizes = {program.name: program.stat().st_size for program in (here.opencode, here.ripgrep)}
    (root / "installed.json").write_text(json.dumps(sizes))


@pytest.mark.timeout(SECONDS)
@requirement("hub.config.local", "hub.config.remote", "hub.child.bun", "hub.name.parity", "servers.opencode.program")
@pytest.mark.parametrize("installed", [False, True], ids=["on the PATH", "installed by Rookery"])
async def test_the_example_configuration_of_opencode_works_as_written(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkout()
    (folder / "opencode.jsonc").write_text(EXAMPLE)
    # The real OpenCode, which finds the package here and fetches it where it is not.
    (folder / "node_modules").symlink_to(npm_servers.installed("filesystem").parents[1])
    search = npm_servers.on_the_path()
    assert shutil.which("opencode", path=search) is None
    monkeypatch.setenv("PATH", search if installed else f"{opencode.installed().opencode.parent}:{search}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    async with start_gateway(None, folder) as gateway:
        if installed:
            install_opencode()
        local, remote = [slot.definition for slot in (await gateway.hub.server_set(folder.resolve())).slots()]
        assert (local.kind, local.timeouts.catalog, local.enabled) == ("local", 5, True)
        assert (remote.kind, remote.url, remote.timeouts.catalog) == ("remote", "https://example.com/mcp", 10)
        assert remote.headers == {"Authorization": "Bearer token"}
        (subject,) = [one for one in await gateway.service.list_waiting() if one.name == "filesystem"]
        await gateway.approvals.approve(subject, subject.digest)
        await gateway.service.on_approvals_changed(subject.key)
        caller = await gateway.caller(view_of(folder) + "?names=opencode", limit=SECONDS)
        assert "filesystem_read_file" in await caller.tools()
        # The server asks for the client's roots after it has connected, and refuses every path until it has read them.
        async with asyncio.timeout(SECONDS):
            while str(folder.resolve()) not in words(await caller.call("filesystem_list_allowed_directories")):
                pass
        found = await caller.call("filesystem_read_file", {"path": str(folder.resolve() / "opencode.jsonc")})
        assert words(found) == EXAMPLE
        assert await gateway.status("remote-api", folder) == "needs_approval"


async def test_a_server_runs_in_its_workspace_or_where_its_definition_says() -> None:
    folder = checkout()
    (folder / "sub").mkdir()
    async with start_gateway(None, folder) as gateway:
        scripted = gateway.scripted
        write(scripted.servers("one") | scripted.servers("two", cwd="sub") | scripted.servers("app", scope="app"))
        await (await gateway.caller(view_of(folder))).tools()
        where = {one.name: one.cwd for one in gateway.scripted.all}
        assert where == {"one": folder.resolve(), "two": folder.resolve() / "sub", "app": Path.home().resolve()}


# ---- approval


# Each file that a repository may bring along, the way to the servers in it, and whether a command is one list there.
FILES = {
    ".rookery/mcp.json": ("servers", True),
    ".dispatch/mcp.json": ("servers", False),
    "opencode.json": ("mcp", True),
    ".opencode/opencode.jsonc": ("mcp", True),
    ".mcp.json": ("mcpServers", False),
}


def bring(folder: Path, name: str, entry: Message) -> None:
    """Put a definition into a file of a repository, as it is written there."""
    key, whole = FILES[name]
    program, *words = entry["command"]
    written = entry if whole else {**entry, "command": program, "args": words}
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps({key: {"repo": written | ({"type": "local"} if key == "mcp" else {})}}))


@requirement("guard.approve.config", "hub.config.dispatch", "hub.config.sources", "hub.api.control")
@pytest.mark.parametrize("name", FILES)
async def test_c24_a_cloned_repository_starts_nothing_whatever_it_brings_along(name: str) -> None:
    folder = checkout()
    async with start_gateway(None, folder) as gateway:
        bring(folder, name, gateway.scripted.server("repo"))
        for era_path in (view_of(folder), view_of(folder, "repo"), "/mcp"):
            caller = await gateway.caller(era_path)
            await caller.tools()
            found = await caller.call("repo__echo" if "/s/" not in era_path else "echo")
            assert "error" in found
        _, found = await gateway.rest("POST", f"/api/mcp/repo/connect?workspace={folder}")
        assert found["error"]["code"] == "needs-approval"
        assert (await gateway.rest("GET", f"/api/tools?workspace={folder}"))[1] == []
        assert await gateway.status("repo", folder) == "needs_approval"
        assert gateway.scripted.all == []
        assert await approve(gateway, folder) == 1
        assert "repo__echo" in await (await gateway.caller(view_of(folder))).tools()
        told = [event["status"] for event in gateway.events.of("mcp.status") if event["server"] == "repo"]
        assert told[-3:] == ["pending", "pending", "connected"]


@requirement("guard.approve.config")
async def test_c24_a_repository_cannot_switch_on_or_rename_its_way_around_approval() -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: scripted.servers("mine"), folder) as gateway:
        # A name of the user's own server, defined anew by the repository.
        write({"mine": gateway.scripted.server("evil")}, folder / ".rookery" / "mcp.json")
        caller = await gateway.caller(view_of(folder))
        assert await caller.tools() == []
        assert gateway.scripted.all == []
        shadowed = [one for one in await gateway.hub.records(folder) if one.shadowed]
        assert [one.name for one in shadowed] == ["mine"]
        await gateway.rest("POST", f"/api/mcp/mine/enable?workspace={folder}", {})
        assert await caller.tools() == []
        assert gateway.scripted.all == []


CHANGES: dict[str, Message] = {
    "command": {"command": ["bash", "run.sh", "-a", "-b"]},
    "order": {"command": ["sh", "run.sh", "-b", "-a"]},
    "argument": {"command": ["sh", "run.sh", "-a", "-b", ""]},
    "environment": {"environment": {"KEY": "2", "OTHER": "{env:HOME}"}},
    "variable": {"environment": {"KEY": "1", "OTHER": "{env:PATH}"}},
    "cwd": {"cwd": "."},
    "inherit": {"inherit": True},
    "kind": {"command": None, "environment": None, "url": "http://127.0.0.1:1/mcp"},
    "scope": {"scope": "app"},
}


@requirement("guard.approve.config")
@pytest.mark.parametrize("change", [*CHANGES, "script", "source"])
async def test_c10_another_definition_under_an_approved_name_waits_again(change: str) -> None:
    folder = checkout()
    script = folder / "run.sh"
    async with start_gateway(None, folder) as gateway:
        real = " ".join(gateway.scripted.server("repo")["command"])
        script.write_text(f"exec {real}\n")
        one: Message = {"command": ["sh", "run.sh", "-a", "-b"], "environment": {"KEY": "1", "OTHER": "{env:HOME}"}}
        write({"repo": one}, folder / ".rookery" / "mcp.json")
        caller = await gateway.caller(view_of(folder))
        assert await caller.tools() == []
        assert await approve(gateway, folder) == 1
        assert "repo__echo" in await caller.tools()
        await gateway.rest("POST", f"/api/mcp/repo/disconnect?workspace={folder}")
        if change == "script":
            script.write_text(f"exec {real} # changed\n")
        elif change == "source":
            (folder / ".rookery" / "mcp.json").unlink()
            bring(folder, "opencode.json", {**one, "command": ["sh", "run.sh"]})
        else:
            write({"repo": one | CHANGES[change]}, folder / ".rookery" / "mcp.json")
        await gateway.hub.config_watcher.read_again()
        await gateway.rest("POST", f"/api/mcp/repo/connect?workspace={folder}")
        assert await caller.tools() == []
        assert await gateway.status("repo", folder) == "needs_approval"
        assert len(gateway.scripted.all) == 1
        if change == "script":
            script.write_text(f"exec {real}\n")
        elif change != "source":
            write({"repo": one}, folder / ".rookery" / "mcp.json")
        else:
            return
        # As it was approved, it may run again.
        await gateway.hub.config_watcher.read_again()
        await gateway.rest("POST", f"/api/mcp/repo/connect?workspace={folder}")
        assert "repo__echo" in await caller.tools()


@requirement("guard.approve.config")
async def test_c10_a_script_that_is_swapped_while_its_server_rests_is_not_started() -> None:
    folder = checkout()
    script = folder / "run.py"
    async with start_gateway(None, folder) as gateway:
        words = gateway.scripted.server("repo", idle=0.2)["command"][2:]
        script.write_text(f"import sys, runpy; sys.argv[1:] = {words[1:]!r}; runpy.run_path({words[0]!r})\n")
        write({"repo": {"command": [sys.executable, "-S", "run.py"], "idle": 0.2}}, folder / ".rookery" / "mcp.json")
        caller = await gateway.caller(view_of(folder))
        await caller.tools()
        assert await approve(gateway, folder) == 1
        assert told(await caller.call("repo__echo"))["server"] == "repo"
        await gateway.becomes("repo", "stopped", directory=folder)
        script.write_text("open('stolen', 'w')\n")
        found = await caller.call("repo__echo")
        assert found["result"]["structuredContent"]["error"]["code"] == "needs-approval"
        assert not (folder / "stolen").exists()
        assert await gateway.status("repo", folder) == "needs_approval"
        assert await caller.tools() == []


@requirement("guard.approve.config")
async def test_c10_what_was_approved_in_one_checkout_is_not_approved_in_another() -> None:
    left, right = checkout("left"), checkout("right")
    async with start_gateway(None, left, right) as gateway:
        for folder in (left, right):
            write({"repo": gateway.scripted.server("repo")}, folder / ".rookery" / "mcp.json")
        callers = [await gateway.caller(view_of(folder)) for folder in (left, right)]
        assert await approve(gateway, left) == 1
        assert "repo__echo" in await callers[0].tools()
        assert await callers[1].tools() == []
        assert {one.cwd for one in gateway.scripted.all} == {left.resolve()}


@requirement("guard.approve.config")
@pytest.mark.parametrize("scope", ["app", "workspace"])
async def test_c10_a_repositorys_server_runs_where_its_files_were_checked_in_any_scope(
    scope: str,
) -> None:
    folder = checkout()
    inner = folder / "src" / "c"
    inner.mkdir(parents=True)
    async with start_gateway(None, folder) as gateway:
        (inner / "run.sh").write_text(f"#!/bin/sh\nexec {' '.join(gateway.scripted.server('repo')['command'])}\n")
        (inner / "run.sh").chmod(0o755)
        entry = {"command": ["./run.sh"], "scope": scope, "cwd": "src/c"}
        write({"repo": entry}, folder / ".rookery" / "mcp.json")
        (subject,) = await gateway.service.list_waiting()
        assert list(subject.files) == ["src/c/run.sh"]
        assert subject.folder == str(inner.resolve())
        await approve(gateway, folder)
        caller = await gateway.caller(view_of(folder))
        assert "repo__echo" in await caller.tools()
        assert [one.cwd for one in gateway.scripted.all] == [inner.resolve()]
        assert (await gateway.rest("GET", f"/api/mcp?workspace={folder}"))[1]["repo"]["workspace"] == str(folder)
        await gateway.rest("POST", f"/api/mcp/repo/disconnect?workspace={folder}")
        (inner / "run.sh").write_text("#!/bin/sh\ntouch stolen\n")
        await gateway.rest("POST", f"/api/mcp/repo/connect?workspace={folder}")
        assert await gateway.status("repo", folder) == "needs_approval"
        assert not (inner / "stolen").exists()


@requirement("guard.approve.config")
async def test_c10_revoking_a_server_in_one_checkout_leaves_the_same_one_in_another() -> None:
    left, right = checkout("left"), checkout("right")
    async with start_gateway(None, left, right) as gateway:
        for folder in (left, right):
            write({"repo": gateway.scripted.server("repo", scope="app")}, folder / ".rookery" / "mcp.json")
        callers = [await gateway.caller(view_of(folder)) for folder in (left, right)]
        for folder, caller in zip((left, right), callers, strict=True):
            assert await approve(gateway, folder) == 1
            assert "repo__echo" in await caller.tools()
        key = next(one.key for one in await gateway.approvals.list() if one.place == str(left.resolve()))
        await gateway.approvals.revoke(key)
        await gateway.service.on_approvals_changed(key)
        await gateway.rest("POST", f"/api/mcp/repo/disconnect?workspace={right}")
        await gateway.rest("POST", f"/api/mcp/repo/connect?workspace={right}")
        assert await gateway.status("repo", right) == "connected"
        assert await gateway.status("repo", left) == "needs_approval"


@requirement("guard.approve.config")
async def test_no_file_is_looked_at_for_what_nobody_has_approved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = checkout()
    looked: list[str] = []
    real = definitions.list_named_files

    def seen(argv: Sequence[str], *more: Any) -> list[Path]:
        looked.append(argv[0])
        return real(argv, *more)

    monkeypatch.setattr(definitions, "list_named_files", seen)
    async with start_gateway(None, folder) as gateway:
        command = gateway.scripted.server("repo")["command"]
        write({"repo": {"command": command}}, folder / ".rookery" / "mcp.json")
        session = await gateway.old_caller(view_of(folder))
        await session.tools()
        await gateway.hub.refresh()
        assert looked == []
        assert await approve(gateway, folder) == 1
        looked.clear()
        await gateway.hub.refresh()
        assert looked == command[:1]


async def test_a_directory_that_takes_long_to_open_keeps_no_other_waiting() -> None:
    folder = checkout()
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(definition: Definition, where: Path | None) -> bool:
        reached.set()
        await go_on.wait()
        return False

    async with start_gateway(None, folder) as gateway:
        write({"repo": gateway.scripted.server("repo")}, folder / ".rookery" / "mcp.json")
        spawner = Spawner(new_id())
        connector = Connector(
            spawner,
            never,
            slow,
            SignInManager(folder, spawner, ProxySettings()),
            EnvironmentFilter("servers.env"),
            lambda: None,
        )
        pool = ServerPool(connector, gateway.hub.pool.catalogs, lambda server: None)
        hub = Hub(pool, gateway.hub.switches, gateway.events)
        async with asyncio.timeout(10):
            opening = asyncio.create_task(hub.server_set(folder))
            await reached.wait()
            await hub.server_set(None)
            assert not opening.done()
            go_on.set()
            assert [one.status for one in (await opening).records()] == ["needs_approval"]
        await hub.close()


def never() -> Any:
    raise AssertionError("nothing here is remote")


# ---- many of them


@requirement("hub.pool.reuse")
async def test_d16_the_number_of_server_processes_does_not_grow_with_reconnections() -> None:
    folders = [checkout(f"w{number}") for number in range(10)]

    def servers(scripted: ScriptedServers) -> Message:
        return scripted.servers("one", "two") | scripted.servers("app", scope="app")

    async with start_gateway(servers, *folders) as gateway:
        for _ in range(5):
            callers = await all_of(gateway.old_caller(view_of(folder)) for folder in folders)
            await all_of(caller.tools() for caller in callers)
            await all_of(caller.call("one__echo") for caller in callers)
            await all_of(caller.close() for caller in callers)
        assert len(gateway.scripted.all) == len(gateway.scripted.alive()) == 2 * 10 + 1


@requirement("hub.status.values")
async def test_every_status_that_a_server_can_have_is_shown_as_it_is() -> None:
    folder = checkout()
    async with start_gateway(None, folder, patient=False) as gateway:
        scripted = gateway.scripted
        write({"waits": scripted.server("waits")}, folder / ".rookery" / "mcp.json")
        write(
            {
                "off": scripted.server("off", disabled=True),
                "slow": scripted.server("slow", ServerScript(held={"initialize"})),
                "good": scripted.server("good"),
                "bad": {"command": "false"},
                "idle": scripted.server("idle", idle=0.1),
                "worse": {"command": "false"},
            }
        )
        await (await gateway.caller(view_of(folder))).tools()
        for name, status in (("good", "connected"), ("bad", "failed"), ("worse", "failed"), ("idle", "stopped")):
            await gateway.becomes(name, status, directory=folder)
        await gateway.rest("POST", f"/api/mcp/worse/connect?workspace={folder}")
        _, found = await gateway.rest("GET", f"/api/mcp?workspace={folder}")
        assert {name: one["status"] for name, one in found.items()} == {
            "off": "disabled",
            "slow": "pending",
            "good": "connected",
            "waits": "needs_approval",
            "bad": "failed",
            "worse": "backoff",
            "idle": "stopped",
        }
        assert {name for name, one in found.items() if one["error"]} == {"bad", "worse"}
