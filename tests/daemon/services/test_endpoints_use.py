"""The MCP server of each workspace in use: many clients, every transport, and only with access rights."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from mcp import Client, StdioServerParameters

from tests.support.cli.workspaces import app, made, ws
from tests.support.daemon.endpoints import JSON, PING, ask, bearer, mcp, token_of
from tests.support.daemon.events import Reader
from tests.support.daemon.process import ROOKERY, Daemon
from tests.support.mcp.caller import ERAS, HANDSHAKE, MODERN, Caller
from tests.support.mcp.sdk_client import LIMIT
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

CLIENTS = 50


def opened(*names: str) -> Path:
    checkout = app(Path.home() / "app", {"a.txt": "a\n"})
    for name in names:
        made(name, "--no-agent", cwd=checkout)
    return checkout


# ---- who may


@requirement("house.auth.cross-site")
def test_a01_a02_a03_a04_a05_a_port_asks_for_its_own_host_origin_and_a_token(daemon: Daemon) -> None:
    shown = mcp("one", opened("one"))
    port, own = shown["port"], dict(bearer(token_of(daemon, "one")))
    for path in ("/mcp", "/messages", "/mcp?toolsets=workspace"):
        for token in (own, dict(bearer(daemon.token))):
            passed = ask(port, "POST", path, PING, **JSON, **token).status
            assert passed in (400, 404), path  # there is no session, but it was let in
            others = ("evil.test", f"127.0.0.1:{daemon.port}", f"127.0.0.1:{port}.evil.test", f"0.0.0.0:{port}")
            for host in others:
                assert ask(port, "POST", path, PING, **JSON, **token, Host=host).status == 421, host
            for origin in (
                "https://evil.test",
                "null",
                f"http://127.0.0.1:{daemon.port}",
                "http://localhost.evil.test",
            ):
                answer = ask(port, "POST", path, PING, **JSON, **token, Origin=origin)
                assert answer.status == 403 and "access-control-allow-origin" not in answer.headers, origin
            text = {**JSON, "Content-Type": "text/plain"}
            assert ask(port, "POST", path, PING, **text, **token).status == 415
        assert ask(port, "OPTIONS", path, Origin="https://evil.test").status == 403
        assert ask(port, "POST", path, PING, **JSON).status == 401
        for wrong in ("wrong", daemon.token + "x", daemon.token[:-1]):
            assert ask(port, "POST", path, PING, **JSON, **bearer(wrong)).status == 401
        assert ask(port, "POST", f"{path}?token={daemon.token}", PING, **JSON).status == 401
    for path in ("/sse", "/ws", "/mcp"):
        assert ask(port, "GET", path).status == 401
    good = f"localhost:{port}"
    assert ask(port, "POST", "/mcp", PING, **JSON, **own, Host=good, Origin=f"http://{good}").status == 400


@requirement("ws.endpoint.start")
def test_a06_a18_the_token_and_the_sessions_of_another_workspace_open_nothing(daemon: Daemon) -> None:
    checkout = opened("one", "two")
    ports = {name: mcp(name, checkout)["port"] for name in ("one", "two")}
    hello = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode()
    sessions: dict[str, str] = {}
    for name, port in ports.items():
        for other in ports:
            path = "/mcp" if other == name else "/mcp?toolsets=workspace"
            # Neither does a header help that says otherwise.
            header = {"X-Workspace-Path": str(checkout)}
            answer = ask(port, "POST", path, body, **JSON, **header, **bearer(token_of(daemon, other)))
            assert answer.status == (200 if other == name else 403)
            sessions |= {name: answer.headers["mcp-session-id"]} if other == name else {}
    for name, other in (("one", "two"), ("two", "one")):
        for token in (token_of(daemon, name), daemon.token):
            known = {"Mcp-Session-Id": sessions[other], "MCP-Protocol-Version": HANDSHAKE, **bearer(token)}
            assert ask(ports[name], "POST", "/mcp", PING, **JSON, **known).status == 404


@requirement("ws.endpoint.start")
def test_a08_it_listens_on_loopback_only_and_serves_nothing_but_mcp(daemon: Daemon) -> None:
    shown = mcp("one", opened("one"))
    port, owner = shown["port"], dict(bearer(daemon.token))
    addresses = {one.laddr for one in psutil.Process(daemon.pid).net_connections() if one.status == psutil.CONN_LISTEN}
    assert {one.ip for one in addresses} == {"127.0.0.1"} and port in {one.port for one in addresses}
    path = shown["app_url"].partition(str(daemon.port))[2]
    for other in ("/", "/api/health", "/api/status", "/metrics", "/socket.io/", path, "/mcp/", "//mcp", "/%6dcp"):
        assert ask(port, "GET", other, None, **owner).status == 404, other
    # A client of the oldest transport that asks at the wrong place is told the right one.
    answer = ask(port, "GET", "/mcp", None, **owner, Accept="text/event-stream")
    assert answer.status == 400 and "/sse" in answer.json()["error"]["message"]


# ---- what is there


@requirement("ws.endpoint.same-view")
async def test_the_port_the_path_and_the_bridge_serve_the_same(daemon: Daemon) -> None:
    checkout = opened("one")
    shown = mcp("one", checkout)
    found: list[Any] = []
    headers = bearer(daemon.token)
    calls: list[tuple[str, dict[str, Any]]] = [
        *(("read_file", {"path": path}) for path in ("a.txt", "/etc/passwd")),
        *((name, {}) for name in ("workspace_get_status", "workspace_get_metadata", "list_just_tasks")),
    ]
    async with aiohttp.ClientSession() as http:
        for url in (shown["url"], shown["app_url"]):
            for era in ERAS:
                caller = Caller(http, url, era, headers=headers)
                await caller.open()
                answers = [(await caller.call(*call))["result"] for call in calls]
                found.append((await caller.listed("tools"), [answer_of(one) for one in answers]))
                if era == HANDSHAKE:
                    # What was begun at one place goes on at the other.
                    other = Caller(http, shown["app_url" if url == shown["url"] else "url"], era, headers=headers)
                    other.session = caller.session
                    assert await other.listed("tools") == found[-1][0]
                await caller.close()
        narrowed = Caller(http, f"{shown['url']}?toolsets=workspace", headers=headers)
        names = {one["name"] for one in await narrowed.listed("tools")}
        assert "workspace_get_status" in names and "read_file" not in names
    way = StdioServerParameters(
        command=str(ROOKERY), args=["bridge", "--workspace", "one"], env=dict(os.environ), cwd=str(checkout)
    )
    for mode in ("legacy", MODERN):
        async with Client(way, mode=mode, read_timeout_seconds=LIMIT) as client:
            tools = [one.model_dump(by_alias=True, exclude_none=True) for one in (await client.list_tools()).tools]
            results = [await client.call_tool(*call) for call in calls]
            answers = [answer_of(one.model_dump(by_alias=True, exclude_none=True)) for one in results]
            found.append((tools, answers))
    names = [one["name"] for one in found[0][0]]
    assert "read_file" in names and "workspace_get_status" in names
    assert [one["isError"] for one in found[0][1]] == [False, True, False, False, False]
    assert found[0][1][0]["content"][0]["text"].endswith("a\n")
    for tools, answers in found[1:]:
        assert tools == found[0][0]
        assert answers == found[0][1]
    assert [one["name"] for one in mcp("one", checkout)["tools"]] == names


def answer_of(result: dict[str, Any]) -> dict[str, Any]:
    """What a tool answered, whatever the era wraps around it."""
    kept = {key: result.get(key) for key in ("content", "structuredContent")}
    return {**kept, "isError": result.get("isError", False)}


@requirement("ws.endpoint.state")
async def test_clients_tools_and_traffic_are_told_without_what_was_said(daemon: Daemon) -> None:
    checkout = opened("one")
    shown = mcp("one", checkout)
    assert (shown["connected_clients"], shown["traffic"]) == (0, [])
    assert {"name", "description", "parameters"} == shown["tools"][0].keys()
    events = Reader(daemon, "/api/events?since=0")
    async with aiohttp.ClientSession() as http:
        # Over the port and over the path alike.
        old = Caller(http, shown["url"], HANDSHAKE, headers=bearer(daemon.token))
        new = Caller(http, shown["app_url"], MODERN, headers=bearer(token_of(daemon, "one")))
        for caller in (old, new):
            await caller.open()
            await caller.call("workspace_set_metadata", {"key": "note", "value": "a secret"}, id_="the-call")
        await new.call("no_such_tool", id_="wrong")
        told = mcp("one", checkout)
        assert told["connected_clients"] == 2
        report = daemon.http("GET", "/api/status").json()["workspaces"][1]["mcp"]
        assert report == {**told, "traffic": report["traffic"]}
        assert timeless(report) == timeless(told)
        heard = await asyncio.to_thread(_counted, events, 2)
        assert heard["tools"] == told["tools"] and heard["traffic"]
        await old.close()
        heard = await asyncio.to_thread(_counted, events, 1)
        assert timeless(heard) == timeless(told) and heard["tools"] == told["tools"]
        assert (heard["server_running"], heard["port"], heard["last_error"]) == (True, shown["port"], None)
    came, went = [one for one in told["traffic"] if one["id"] == "the-call"][:2]
    assert (came["direction"], came["method"], came["tool"]) == ("in", "tools/call", "workspace_set_metadata")
    assert (went["direction"], went["method"], went["error"]) == ("out", "answer", None)
    assert went["ms"] > 0 and went["bytes"] > 0 and came["bytes"] > 0 and went["time"] >= came["time"]
    assert [one["error"] for one in told["traffic"] if one["id"] == "wrong"] == [None, -32602]
    assert {"initialize", "server/discover", "notifications/initialized"} <= {one["method"] for one in told["traffic"]}
    text = json.dumps(told["traffic"])
    assert "secret" not in text and token_of(daemon, "one") not in text
    ws("close", "one", cwd=checkout)
    closed = mcp("one", checkout)
    heard = _counted(events, 0)
    events.close()
    assert (heard["server_running"], heard["port"], heard["tools"]) == (False, None, [])
    assert timeless(heard) == timeless(told)
    # A server that is no more has no traffic.
    assert closed == {**heard, "app_url": shown["app_url"], "traffic": []}


def timeless(state: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a state; when they came is rounded anew each time."""
    return [{key: value for key, value in line.items() if key != "time"} for line in state["traffic"]]


def _counted(events: Reader, clients: int) -> dict[str, Any]:
    """Wait for the event that tells of so many clients; with none, of a server that is stopped."""
    told: dict[str, Any] = {"connected_clients": None}
    while told["connected_clients"] != clients or told["server_running"] is (clients == 0):
        told = events.until("workspace.mcp")["data"]["mcp"]
    assert told.keys() == {"server_running", "port", "url", "connected_clients", "last_error", "tools", "traffic"}
    return told


@requirement("ws.endpoint.state")
def test_only_the_last_hundred_messages_are_kept_and_a_burst_is_one_event(daemon: Daemon) -> None:
    shown = mcp("one", checkout := opened("one"))
    for number in range(80):
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "initialize", "params": _hello(number)}).encode()
        assert ask(shown["port"], "POST", "/mcp", body, **JSON, **bearer(daemon.token)).status == 200
    told = mcp("one", checkout)
    assert told["connected_clients"] == 80
    assert [one["id"] for one in told["traffic"]] == [number for number in range(30, 80) for _ in range(2)]


def _hello(number: int) -> dict[str, Any]:
    about = {"name": f"client {number}", "version": "1"}
    return {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": about}


@requirement("ws.endpoint.start", "wire.server.concurrent")
async def test_fifty_clients_at_once_on_one_port_are_all_answered(daemon: Daemon) -> None:
    shown = mcp("one", opened("one"))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        callers = [Caller(http, shown["url"], ERAS[n % 2], headers=bearer(daemon.token)) for n in range(CLIENTS)]
        await asyncio.gather(*(caller.open() for caller in callers))
        for _ in range(3):
            found = await asyncio.gather(*(one.call("read_file", {"path": "a.txt"}, id_=7) for one in callers))
            assert len({json.dumps(one["result"]["content"]) for one in found}) == 1
            assert {one["id"] for one in found} == {7}
        await asyncio.gather(*(caller.close() for caller in callers))
