"""Workspaces and their tokens in the real daemon, over its port and across restarts."""

import asyncio
import json
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rookery.system.ids import project_id
from tests.support.cli.user import user
from tests.support.cli.workspaces import app, made, ws
from tests.support.daemon.jobs import program, routes, start_job_runner
from tests.support.daemon.process import Daemon, rookery, up
from tests.support.mcp.caller import ERAS, HANDSHAKE, Caller, told
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

HEADER = "X-Workspace-Path"


def two_workspaces(folder: Path) -> tuple[Path, list[Path]]:
    checkout = app(folder)
    paths = [made(name, cwd=checkout) for name in ("left", "right")]
    for path in paths:
        ws("meta", "set", "who", path.name, cwd=path)
    return checkout, paths


def tokens(daemon: Daemon) -> dict[str, str]:
    """The token of each workspace, by the name of its git folder. Agents will have them in their environment."""
    with closing(sqlite3.connect(daemon.state / "rookery.db")) as db:
        rows: list[tuple[str, str]] = db.execute("SELECT workspace, token FROM workspace_tokens").fetchall()
    return {Path(workspace).name: token for workspace, token in rows}


async def who(http: aiohttp.ClientSession, daemon: Daemon, era: str, path: str, headers: dict[str, str]) -> str:
    caller = Caller(http, f"{daemon.runtime['url']}{path}", era, headers=headers)
    await caller.open()
    found = await caller.call("workspace_get_metadata")
    await caller.close()
    return found["result"]["structuredContent"]["who"]


@requirement("house.auth.loopback")
async def test_with_auth_loopback_the_header_alone_selects_any_workspace(state: Path, tmp_path: Path) -> None:
    daemon = await asyncio.to_thread(up, "--set", "auth=loopback")
    try:
        checkout, paths = await asyncio.to_thread(two_workspaces, tmp_path / "app")
        async with aiohttp.ClientSession() as http:
            for era in ERAS:
                for path in paths:
                    assert await who(http, daemon, era, "/mcp", {HEADER: str(path)}) == path.name
                    assert await who(http, daemon, era, f"/w/{project_id(checkout)}/{path.name}/mcp", {}) == path.name
        for wrong, status in (({"Host": "evil.test"}, 421), ({"Origin": "http://evil.test"}, 403)):
            sent = {HEADER: str(paths[0]), "Content-Type": "application/json", **wrong}
            answer = await asyncio.to_thread(daemon.http, "POST", "/mcp", b"{}", token=None, headers=sent)
            assert answer.status == status
    finally:
        await asyncio.to_thread(rookery, "down")


@requirement("ws.identity.token")
async def test_a06_a_token_opens_its_workspace_over_restarts_and_is_in_no_log(state: Path, tmp_path: Path) -> None:
    daemon = await asyncio.to_thread(up)
    try:
        _, paths = await asyncio.to_thread(two_workspaces, tmp_path / "app")
        given = tokens(daemon)
        assert given.keys() == {"left", "right"} and len(set(given.values())) == 2
        for _ in range(2):
            async with aiohttp.ClientSession() as http:
                for name, token in given.items():
                    headers = {"Authorization": f"Bearer {token}"}
                    assert await who(http, daemon, ERAS[1], "/mcp", headers) == name
            for method, path, more in (
                ("GET", "/api/status", {}),
                ("GET", "/api/workspaces", {}),
                ("GET", "/sse", {HEADER: str(paths[1])}),
            ):
                answer = await asyncio.to_thread(daemon.http, method, path, token=given["left"], headers=more)
                assert answer.status == 403, path
            assert (await asyncio.to_thread(rookery, "down")).returncode == 0
            daemon = await asyncio.to_thread(up)
        assert tokens(daemon) == given
        assert not [one for one in daemon.log() if any(token in str(one) for token in given.values())]
    finally:
        await asyncio.to_thread(rookery, "down")


BAD_TOKENS = [
    "a",
    "",
    "rk_short",
    "rk_" + "x" * 42,
    "rk_" + "x" * 44,
    "x" * 46,
    "rk_" + "x" * 42 + "\n\ny",
    "rk_" + "é" * 43,
]


@requirement("house.auth.token")
@pytest.mark.parametrize("bad", BAD_TOKENS)
def test_a_token_file_that_holds_no_token_is_replaced_and_that_is_said(state: Path, bad: str) -> None:
    path = state / "token"
    path.write_text(bad)
    path.chmod(0o600)
    daemon = up()
    try:
        assert re.fullmatch(r"rk_[\w-]{43}\n", path.read_text()) and path.stat().st_mode & 0o777 == 0o600
        assert daemon.http("GET", "/api/status").status == 200
        if bad.isascii() and bad.strip().isprintable():
            assert daemon.http("GET", "/api/status", token=bad or None).status == 401
        problems = daemon.http("GET", "/api/status").json()["daemon"]["problems"]
        assert any(f"{path} held no valid token" in problem for problem in problems)
        assert any(f"{path} held no valid token" in one["message"] for one in daemon.log())
        kept = path.read_text()
    finally:
        assert rookery("down").returncode == 0
    # A good one is kept, and nothing is said of it.
    again = up()
    try:
        assert path.read_text() == kept
        assert not any("token" in one for one in again.http("GET", "/api/status").json()["daemon"]["problems"])
    finally:
        assert rookery("down").returncode == 0


@requirement("house.auth.token")
def test_a_workspace_token_that_is_none_is_replaced_and_that_is_said(state: Path, tmp_path: Path) -> None:
    daemon = up()
    checkout, _ = two_workspaces(tmp_path / "app")
    good = tokens(daemon)
    assert rookery("down").returncode == 0
    with closing(sqlite3.connect(state / "rookery.db")) as db:
        db.execute("UPDATE workspace_tokens SET token = 'a' WHERE workspace LIKE '%/left'")
        db.commit()
    daemon = up()
    try:
        assert ws("token", "right", cwd=checkout).strip() == good["right"]
        left = ws("token", "left", cwd=checkout).strip()
        assert re.fullmatch(r"rk_[\w-]{43}", left) and left != good["left"]
        assert daemon.http("GET", f"/w/{project_id(checkout)}/left/mcp", token="a").status == 401
        problems = daemon.http("GET", "/api/status").json()["daemon"]["problems"]
        assert [one for one in problems if "held no valid token" in one and "worktrees/left" in one]
    finally:
        assert rookery("down").returncode == 0


# ---- auth = "loopback", for clients without a token and for agents with theirs

KINDS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
# What the toolsets of a workspace's own endpoint have, and what no client without a token may have.
OURS = {"workspace_get_status", "workspace_delete", "read_file", "run_just_task"}
OWNERS = {"answer_ask", "send_message", "create_session", "hub_list_servers"}


@requirement("house.auth.loopback-agents")
@pytest.mark.timeout(300)
async def test_without_a_token_a_named_workspace_offers_its_own_tools_and_nothing_else(state: Path) -> None:
    async with start_job_runner("auth=loopback") as inside:
        daemon, url = inside.daemon, inside.daemon.runtime["url"]
        servers = {"servers": {"odd": {"command": [sys.executable, "-c", "input()"]}}}
        config = Path.home() / ".config" / "rookery" / "mcp.json"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(json.dumps(servers))
        place = f"/w/{inside.project}/other"
        port = json.loads((await asyncio.to_thread(user, "ws", "show", "other", "--json", cwd=inside.app)).stdout)[
            "mcp"
        ]
        for address, headers in (
            (f"{url}/mcp", {HEADER: str(inside.other)}),
            (f"{url}{place}/mcp", {}),
            (port["url"], {}),
        ):
            for era in ERAS:
                caller = Caller(inside.http, address, era, headers=headers)
                await caller.open()
                found = {one["name"] for one in (await caller.ask("tools/list"))["result"]["tools"]}
                assert found >= OURS and not found & OWNERS, address
                assert not {name for name in found if "__" in name}
                assert told(await caller.call("workspace_get_metadata")) == {"base": "main"}
                for tool in ("answer_ask", "list_asks", "send_message", "odd__any"):
                    answer = await caller.call(tool, {"askId": "per_any", "reply": "once"})
                    assert "error" in answer or answer["result"]["isError"], (address, tool)
                await caller.close()
            # Asking for more does not give more.
            more = Caller(inside.http, f"{address}?toolsets=session,hub,workspace", ERAS[1], headers=headers)
            names = {one["name"] for one in (await more.ask("tools/list"))["result"]["tools"]}
            assert "workspace_delete" in names and not names & (OWNERS | {"read_file"})
        hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).encode()
        for path, status in (("/mcp", 400), (f"{place}/s/odd/mcp", 403), ("/w/nowhere/x/mcp", 404)):
            answer = await asyncio.to_thread(daemon.http, "POST", path, hello, token=None, headers=KINDS)
            assert answer.status == status, (path, answer.body)
        for method, path in (("GET", "/sse"), ("GET", "/ws")):
            assert (await asyncio.to_thread(daemon.http, method, path, token=None)).status == 400
        for method, path in routes():
            filled = re.sub(r"{\w+}", "any", path)
            body = b"{}" if method in ("POST", "PUT") else None
            answer = await asyncio.to_thread(daemon.http, method, filled, body, token=None, headers=KINDS)
            assert answer.status == (200 if path == "/api/health" else 401), (method, path)
        for site in ("cross-site", "same-site"):
            sent = {HEADER: str(inside.other), "Sec-Fetch-Site": site}
            assert (await asyncio.to_thread(daemon.http, "GET", "/sse", token=None, headers=sent)).status == 403


@requirement("house.auth.loopback-agents", "ws.agent.may-not")
@pytest.mark.timeout(300)
async def test_with_auth_loopback_an_agent_stays_within_its_workspace() -> None:
    async with start_job_runner("auth=loopback", "agents.toolsets=workspace,session,hub") as inside:
        bearer = {"Authorization": f"Bearer {inside.token('fix')}"}
        asked = [(method, re.sub(r"{\w+}", "any", path)) for method, path in routes() if path != "/socket.io/"]
        jobs = [inside.to_port(m, path, {} if m in ("POST", "PUT") else None, **bearer) for m, path in asked]
        for (method, path), answer in zip(asked, await inside.run(*jobs), strict=True):
            assert answer["status"] == (200 if path == "/api/health" else 403), (method, path, answer)
        place, header = f"/w/{inside.project}/other/mcp", {HEADER: str(inside.other)}
        hello: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
        hello["params"] = {
            "protocolVersion": HANDSHAKE,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        own = f"/w/{inside.project}/fix/mcp"
        for auth in (bearer, {}):
            found = await inside.run(
                inside.to_port("POST", place, hello, **KINDS, **auth),
                inside.to_port("POST", "/mcp", hello, **KINDS, **header, **auth),
                inside.to_port("POST", own, hello, **KINDS, **auth),
                inside.to_port("POST", "/mcp", hello, **KINDS, **auth),
            )
            assert [one["status"] for one in found] == [403, 403, 200, 200], auth
        # Also through a socket for IPv6, as some runtimes have for all addresses.
        argv = [sys.executable, "-c", MAPPED, str(inside.daemon.port), place, json.dumps(hello)]
        (sent,) = await inside.run(program(*argv))
        assert sent["out"].strip() == "403", sent
        for wrong in ("rk_garbage", inside.daemon.token[:-1], ""):
            for path in (place, "/mcp", "/api/status"):
                answer = await asyncio.to_thread(inside.daemon.http, "GET", path, token=wrong or " ")
                assert answer.status == 401, (wrong, path)
        assert (await asyncio.to_thread(inside.daemon.http, "GET", "/api/status")).status == 200
        assert await inside.names() == ["@main", "fix", "other"]


# Sends one request without a token, and prints the status of the answer.
MAPPED = """
import socket, sys
port, path, body = sys.argv[1:]
head = f"POST {path} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nContent-Type: application/json\\r\\n"
head += f"Accept: application/json, text/event-stream\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
line = socket.socket(socket.AF_INET6)
line.connect(("::ffff:127.0.0.1", int(port)))
line.sendall((head + body).encode())
print(line.recv(1000).split()[1].decode())
"""


@requirement("house.auth.loopback-agents")
def test_status_doctor_and_the_log_say_that_no_token_is_needed(state: Path) -> None:
    for mode, shown in (("token", False), ("loopback", True)):
        daemon = up("--set", f"auth={mode}")
        try:
            assert json.loads(rookery("status", "--json").stdout)["daemon"]["auth"] == mode
            assert ("without a token" in rookery("status").stdout) is shown
            checks = json.loads(rookery("doctor", "--json").stdout)["checks"]
            (check,) = [one for one in checks if one["id"] == "auth"]
            assert check["status"] == ("warning" if shown else "ok")
            assert ("without a token" in check["summary"] and bool(check["remedy"])) is shown
            said = [one["level"] for one in daemon.log() if "without a token" in one["message"]]
            assert said == (["warning"] if shown else [])
        finally:
            assert rookery("down").returncode == 0
        (state / "logs" / "daemon.jsonl").unlink()
