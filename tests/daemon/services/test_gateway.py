"""The gateway in the real daemon: with tokens, over a port, with processes that must end with it."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.conformance.suite import NODE
from tests.support.daemon.endpoints import bearer
from tests.support.daemon.process import Daemon, alive, kill, rookery, up, wait_dead
from tests.support.gateway.gateway import checkout, view_of, write
from tests.support.mcp.caller import ERAS, Caller, failure, told, words
from tests.support.mcp.client import PROGRAMS
from tests.support.mcp.scripted_server import ScriptedServers, ServerScript, start_scripted_servers, tool
from tests.support.npm.mcp_servers import OFFLINE, installed
from tests.support.requirements import requirement
from tests.support.soak import repetitions, soak

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def running() -> Iterator[list[Daemon]]:
    """Daemons that a test starts when its servers are defined; stopped at the end if they still run."""
    daemons: list[Daemon] = []
    yield daemons
    for daemon in daemons:
        if alive(daemon.pid):
            rookery("down")


Running = tuple[Daemon, ScriptedServers, aiohttp.ClientSession]


@asynccontextmanager
async def start_daemon(running: list[Daemon], *projects: Path) -> AsyncGenerator[Running]:
    async with start_scripted_servers() as scripted, aiohttp.ClientSession() as http:
        write(scripted.servers("one", "two"))
        daemon = await asyncio.to_thread(up)
        running.append(daemon)
        for folder in projects:
            body = json.dumps({"path": str(folder)}).encode()
            answer = await asyncio.to_thread(daemon.http, "POST", "/api/projects", body, headers=JSON)
            assert answer.status == 201, answer.body
        yield daemon, scripted, http


def caller(daemon: Daemon, http: aiohttp.ClientSession, path: str = "/mcp", era: str = ERAS[1]) -> Caller:
    headers = {"Authorization": f"Bearer {daemon.token}"}
    return Caller(http, f"{daemon.runtime['url']}{path}", era, headers=headers)


@requirement("hub.catalog.primitives")
async def test_c17_c18_official_clients_call_through_it_and_their_token_goes_no_further(running: list[Daemon]) -> None:
    folder = checkout()
    async with start_daemon(running, folder) as (daemon, scripted, _):
        for mode in ("legacy", ERAS[1]):
            for path, name in (("/mcp", "one__echo"), (view_of(folder, "one"), "echo")):
                headers = {"Authorization": f"Bearer {daemon.token}"}
                async with create_mcp_http_client(headers) as http:
                    way = streamable_http_client(f"{daemon.runtime['url']}{path}", http_client=http)
                    async with Client(way, mode=mode) as client:
                        assert name in [each.name for each in (await client.list_tools()).tools]
                        found = await client.call_tool(name, {"a": 1})
                        assert not found.is_error
        assert len(scripted.of("one")) == 2
        for one in scripted.all:
            assert daemon.token not in "".join(one.lines) + json.dumps(one.env) + " ".join(one.words)
            assert "ROOKERY_HOME" not in one.env and "ROOKERY_TOKEN" not in one.env


async def test_s8_a03_a01_no_endpoint_answers_without_the_token_or_to_a_foreign_host(running: list[Daemon]) -> None:
    folder = checkout()
    async with start_daemon(running, folder) as (daemon, scripted, _):
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "one__echo"}}
        body = json.dumps(call).encode()
        bare = view_of(folder, "one")
        paths = ["/mcp", "/mcp?names=opencode", view_of(folder), bare, "/messages", bare.replace("/mcp", "/messages")]
        tries = [("POST", path) for path in paths] + [("GET", path) for path in ("/sse", "/ws", "/mcp", bare)]
        tries += [("DELETE", "/mcp"), *(("POST", f"/mcp?{key}={daemon.token}") for key in ("token", "access_token"))]
        for method, path in tries:
            for token in (None, "wrong", daemon.token + "x", daemon.token[:-1]):
                answer = daemon.http(method, path, body, token=token, headers=JSON)
                assert answer.status == 401, (method, path, token)
            assert daemon.http(method, path, body, headers=JSON | {"Host": "evil.test"}).status == 421
            assert daemon.http(method, path, body, headers=JSON | {"Origin": "https://evil.test"}).status == 403
        assert scripted.all == []


@requirement("hub.pool.dispose")
async def test_d05_when_the_daemon_stops_all_servers_and_their_processes_have_ended(running: list[Daemon]) -> None:
    async with start_daemon(running) as (daemon, scripted, http):
        await caller(daemon, http).tools()
        one, two = await scripted.comes("one"), await scripted.comes("two")
        one.order(make="plain")
        one.order(make="holds")
        two.order(deaf=True)
        made = await one.has_made(2)
        hanging = caller(daemon, http).begin("two__hold")
        await two.called("hold")
        done = await asyncio.to_thread(rookery, "down")
        assert done.returncode == 0, done.stderr
        assert not [pid for pid in (daemon.pid, one.pid, two.pid, *made) if alive(pid)]
        await asyncio.gather(hanging, return_exceptions=True)


@requirement("hub.pool.dispose")
async def test_d07_when_the_daemon_is_killed_its_servers_end_too(running: list[Daemon]) -> None:
    async with start_daemon(running) as (daemon, scripted, http):
        await caller(daemon, http).tools()
        pids = [one.pid for one in scripted.all]
        assert len(pids) == 2
        await asyncio.to_thread(kill, daemon.pid)
        for pid in pids:
            await asyncio.to_thread(wait_dead, pid)
        # The next one finds nothing, and everything works as before.
        daemon = await asyncio.to_thread(up)
        running.append(daemon)
        assert told(await caller(daemon, http).call("one__echo"))["pid"] not in pids


@requirement("hub.call.hang")
async def test_c19_an_answer_without_end_costs_the_daemon_neither_its_memory_nor_its_life(
    running: list[Daemon],
) -> None:
    async with start_daemon(running) as (daemon, scripted, http):
        client = caller(daemon, http)
        await client.tools()
        process = psutil.Process(daemon.pid)
        before = process.memory_info().rss
        one = await scripted.comes("one")
        for _ in range(2):
            hanging = client.begin("one__hold")
            await one.called("hold")
            one.print('{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"')
            one.print("x" * 1_000_000, times=200)
            found = await hanging
            assert failure(found) == "upstream-failed" and "longer than" in words(found)
            assert told(await client.call("two__echo"))["server"] == "two"
            # In a thread, because what it waits for is answered here.
            await asyncio.to_thread(daemon.http, "POST", "/api/mcp/one/connect", b"{}", headers=JSON)
            one = await scripted.comes("one", len(scripted.of("one")))
        assert alive(daemon.pid)
        peak = next(line for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines() if "VmHWM" in line)
        assert int(peak.split()[1]) * 1024 - before < 400_000_000
        assert process.memory_info().rss - before < 150_000_000


@requirement("hub.config.invalid", "hub.pool.reuse")
async def test_a_changed_file_takes_effect_at_once_and_unchanged_servers_keep_running(
    running: list[Daemon],
) -> None:
    async with start_daemon(running) as (daemon, scripted, http):
        client = caller(daemon, http, era=ERAS[0])
        await client.open()
        await client.listen()
        await client.tools()
        before = {one.name: one.pid for one in scripted.all}
        seen = len(client.all("notifications/tools/list_changed"))
        write(scripted.servers("one", "three"))
        await scripted.of("two")[0].has_ended()
        await client.hears("notifications/tools/list_changed", seen + 1)
        assert "three__echo" in await client.tools() and "two__echo" not in await client.tools()
        assert told(await client.call("one__echo"))["pid"] == before["one"]
        await client.close()


@requirement("hub.pool.scope")
async def test_f06_two_workspaces_never_mix_their_answers_nor_their_directories(running: list[Daemon]) -> None:
    folders = [checkout(name) for name in ("left", "right")]
    async with start_daemon(running, *folders) as (daemon, scripted, http):
        clients = [caller(daemon, http, view_of(folder), era) for folder in folders for era in ERAS]
        for client in clients:
            await client.open()
        turns = [(place, turn) for turn in range(25) for place in range(len(clients))]
        found = await asyncio.gather(*(clients[place].call("one__echo", {"n": [place, turn]}) for place, turn in turns))
        where = {one.pid: one.cwd for one in scripted.of("one")}
        assert len(where) == 2
        for (place, turn), answer in zip(turns, found, strict=True):
            assert told(answer)["arguments"] == {"n": [place, turn]}
            assert where[told(answer)["pid"]] == folders[place // 2].resolve()
        for client in clients:
            await client.close()


@requirement("hub.catalog.changed")
async def test_what_changes_is_told_over_the_standing_stream_of_a_real_connection(
    running: list[Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The list changes: with pins, what is new in it would be withheld.
    monkeypatch.setenv("ROOKERY_GUARD_PINS", "off")
    folder = checkout()
    async with start_daemon(running, folder) as (daemon, scripted, http):
        scripted.plays["one"] = ServerScript()
        for era in ERAS:
            client = caller(daemon, http, view_of(folder, "one"), era)
            await client.open()
            await client.tools()
            await client.listen()
            seen = len(client.all("notifications/tools/list_changed"))
            one = scripted.alive("one")[-1]
            await one.change(tool(f"fresh-{era}"))
            await client.hears("notifications/tools/list_changed", seen + 1)
            # That may still be one about the start of the server.
            while await client.tools() != [f"fresh-{era}"]:
                seen += 1
                await client.hears("notifications/tools/list_changed", seen + 1)
            assert await client.tools() == [f"fresh-{era}"]
            await client.close()


@soak
@requirement("servers.list.first")
async def test_the_first_list_after_a_restart_is_complete_and_every_first_call_works(running: list[Daemon]) -> None:
    each = repetitions(2, 10)
    node = [str(NODE / "bin" / "node"), str(installed("everything") / "dist" / "index.js"), "stdio"]
    python = [sys.executable, "-P", str(PROGRAMS / "sdk_server.py"), "stdio"]
    write(
        {f"node{number}": {"command": node, "environment": OFFLINE} for number in range(each)}
        | {f"python{number}": {"command": python} for number in range(each)}
    )
    async with aiohttp.ClientSession() as http:
        daemon = await asyncio.to_thread(up)
        running.append(daemon)
        names = [f"{kind}{number}" for kind in ("node", "python") for number in range(each)]
        for name in names:
            answer = await asyncio.to_thread(daemon.http, "POST", f"/api/mcp/{name}/connect", b"{}", headers=JSON)
            assert answer.json()["status"] == "connected", answer.body
        complete = await _list_once(http, daemon)
        assert {name.split("__")[0] for name in complete} == {"hub_list_servers", *names}
        for _ in range(repetitions(1, 20)):
            assert await asyncio.to_thread(rookery, "down")
            running.append(daemon := await asyncio.to_thread(up))
            assert await _list_once(http, daemon) == complete
            caller = Caller(
                http, f"http://127.0.0.1:{daemon.port}/mcp", ERAS[0], headers=bearer(daemon.token), limit=120
            )
            await caller.open()
            calls = [caller.call(f"{name}__echo", {"message": "x", "text": "x"}) for name in names]
            assert all("x" in words(result) for result in await asyncio.gather(*calls))
            await caller.close()


async def _list_once(http: aiohttp.ClientSession, daemon: Daemon) -> list[str]:
    """Return what a client sees that connects and lists once."""
    caller = Caller(http, f"http://127.0.0.1:{daemon.port}/mcp", ERAS[0], headers=bearer(daemon.token))
    await caller.open()
    listed = await caller.tools()
    await caller.close()
    return listed
