"""No workspace's token can lock out the owner or other workspaces, and memory is bounded."""

import asyncio
import contextlib
import json
import os
import re
import socket
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from tests.support.agents.watcher import make_script
from tests.support.cli.workspaces import app, made, trusted_app
from tests.support.daemon.endpoints import HELLO, JSON, bearer, call, create, initialize, start_daemon, token_of
from tests.support.daemon.process import Daemon, rookery
from tests.support.daemon.system import place_of, start_system
from tests.support.gateway.gateway import view_of, write
from tests.support.mcp.caller import Caller, Message, failure, words
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [requirement("house.limits.shares"), pytest.mark.timeout(300)]

MEGABYTE = 1_048_576
UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


class Attacker:
    """Opens connections with one token, or none, and lets go of nothing."""

    def __init__(self, daemon: Daemon, token: str | None, stack: contextlib.ExitStack) -> None:
        self._daemon, self._token, self._stack = daemon, token, stack

    def connect(self) -> socket.socket:
        return self._stack.enter_context(self._daemon.connect())

    def send(self, method: str, path: str, *lines: str, body: bytes = b"") -> socket.socket:
        """Send a request on a connection of its own."""
        sock = self.connect()
        token = [f"Authorization: Bearer {self._token}"] if self._token else []
        head = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self._daemon.port}", *token, *lines, "", ""]
        with contextlib.suppress(ConnectionError):  # it was refused before all of it was sent
            sock.sendall("\r\n".join(head).encode() + body)
        return sock

    def open(self, method: str, path: str, *lines: str) -> tuple[int, str]:
        """Send a request; the status of its answer, which is not read to its end, and the code of an error."""
        return beginning(self.send(method, path, *lines))


def beginning(sock: socket.socket) -> tuple[int, str]:
    data = b""
    while b"\r\n\r\n" not in data and (more := sock.recv(65_536)):
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    status = int(head.split(b" ")[1])
    if status < 400:
        return status, ""
    length = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
    while len(rest) < length:
        rest += sock.recv(65_536)
    return status, json.loads(rest)["error"].get("code", "")


@contextlib.contextmanager
def attacked(daemon: Daemon, token: str | None) -> Generator[Attacker]:
    with contextlib.ExitStack() as stack:
        yield Attacker(daemon, token, stack)


def workspaces(*names: str) -> Path:
    checkout = app(Path.home() / "app", {"a.txt": "a\n"})
    for name in names:
        made(name, "--no-agent", cwd=checkout)
    return checkout


def serves(daemon: Daemon, *neighbours: str) -> None:
    """The owner is served over TCP and over the socket, and so are other workspaces."""
    for _ in range(3):
        assert daemon.http("GET", "/api/status").status == 200
    with attacked(daemon, daemon.token) as owner:
        assert owner.open("GET", "/api/events") == (200, "")
        assert owner.open("GET", "/sse") == (200, "")
        assert owner.open("GET", "/ws", *UPGRADE) == (101, "")
    assert rookery("status").returncode == 0
    assert initialize(daemon, daemon.token).status == 200
    for token in neighbours:
        assert initialize(daemon, token).status == 200
        with attacked(daemon, token) as neighbour:
            assert neighbour.open("GET", "/sse") == (200, "")


def test_a10_streams_and_connections_of_one_workspace_shut_nobody_out(daemon: Daemon) -> None:
    workspaces("one", "two")
    one, two = token_of(daemon, "one"), token_of(daemon, "two")
    with attacked(daemon, one) as attacker:
        ways = [("/sse", ()), ("/ws", UPGRADE), ("/socket.io/?EIO=4&transport=websocket", UPGRADE)]
        opened = [attacker.open("GET", *(path, *lines)) for _ in range(40) for path, lines in ways]
        assert [told for told in opened if told[0] < 400] == opened[:64]
        assert set(opened[64:]) == {(429, "too-many-streams")}
        serves(daemon, two)
        # A request whose body does not come keeps its connection busy.
        waits = [
            attacker.send("POST", "/mcp", "Content-Type: application/json", "Content-Length: 9") for _ in range(64)
        ]
        refused = [
            attacker.open("POST", "/mcp", "Content-Type: application/json", "Content-Length: 9") for _ in range(50)
        ]
        assert set(refused) == {(429, "too-many-connections")}
        serves(daemon, two)
        for sock in waits:
            sock.close()
    serves(daemon, one, two)


def test_a10_silent_connections_shut_nobody_out(daemon: Daemon) -> None:
    workspaces("one")
    with attacked(daemon, None) as attacker:
        for _ in range(600):
            attacker.connect().sendall(b"GET /api/health HTTP/1.1\r\n")
        serves(daemon, token_of(daemon, "one"))
        assert daemon.http("GET", "/api/health", token=None).status == 200


def test_a11_bodies_of_one_workspace_are_bounded_and_others_can_send_theirs(daemon: Daemon) -> None:
    workspaces("one", "two")
    one, two = token_of(daemon, "one"), token_of(daemon, "two")
    process = psutil.Process(daemon.pid)
    before = process.memory_info().rss
    piece = b" " * (62 * MEGABYTE)
    kind = "Content-Type: application/json"
    with attacked(daemon, one) as attacker:
        length = f"Content-Length: {len(piece) + 1}"
        held = attacker.send("POST", "/mcp", kind, length, body=piece)
        refused = [beginning(attacker.send("POST", "/mcp", kind, length)) for _ in range(20)]
        assert set(refused) == {(429, "too-many-bytes")}
        in_chunks = attacker.send(
            "POST", "/mcp", kind, "Transfer-Encoding: chunked", body=b"%x\r\n" % len(piece) + piece
        )
        assert beginning(in_chunks) == (429, "too-many-bytes")
        # The same in messages of WebSockets that do not end.
        frame = b"\x81\xff" + len(piece).to_bytes(8, "big") + bytes(4) + piece[:-1]
        for _ in range(5):
            sock = attacker.send("GET", "/ws", *UPGRADE)
            assert beginning(sock)[0] == 101
            with contextlib.suppress(ConnectionError):
                sock.sendall(frame)
        assert process.memory_info().rss - before < 400 * MEGABYTE
        serves(daemon, two)
        for token in (daemon.token, two):
            large = HELLO + b" " * 8 * MEGABYTE
            assert daemon.http("POST", "/mcp", large, token=token, headers=JSON).status == 200
        held.sendall(b" ")
        assert beginning(held)[0] in (200, 400)
        assert daemon.http("POST", "/mcp", HELLO + piece, token=one, headers=JSON).status == 200


def test_a13_answers_that_one_workspace_does_not_read_are_bounded(daemon: Daemon) -> None:
    workspaces("one")
    token = token_of(daemon, "one")
    process = psutil.Process(daemon.pid)
    before = process.memory_info().rss
    session = initialize(daemon, token).headers["mcp-session-id"]
    lines = ("Content-Type: application/json", "Accept: application/json", f"Mcp-Session-Id: {session}")
    with attacked(daemon, token) as attacker:
        for number in range(100):
            # The answer names the method, however long it is.
            body = call(number, "x" * 4 * MEGABYTE)
            attacker.send("POST", "/mcp", *lines, f"Content-Length: {len(body)}", body=body)
        assert process.memory_info().rss - before < 400 * MEGABYTE
        serves(daemon, token)


def test_a11_what_sessions_of_one_workspace_keep_is_bounded() -> None:
    with start_daemon("limits.held_bytes_each=1000000") as daemon:
        workspaces("one")
        token = token_of(daemon, "one")
        process = psutil.Process(daemon.pid)
        before = process.memory_info().rss
        for number in range(100):
            large: dict[str, Any] = {"name": "x" * 900_000} if number % 2 else {"name": [{}] * 200_000}
            hello: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}
            hello["clientInfo" if number % 3 else "capabilities"] = large
            refused = daemon.http("POST", "/mcp", call(1, "initialize", **hello), token=token, headers=JSON).json()
            assert refused["error"]["code"] == -32602 and "larger than 16384 bytes" in refused["error"]["message"]
        session = initialize(daemon, token).headers["mcp-session-id"]

        def subscribe(uri: str, session: str) -> Any:
            headers = JSON | {"Mcp-Session-Id": session}
            body = call(2, "resources/subscribe", uri=uri)
            return daemon.http("POST", "/mcp", body, token=token, headers=headers).json().get("error")

        assert "longer than 4096" in subscribe("x:" + "y" * 900_000, session)["message"]
        errors = [subscribe(f"x:{number}:" + "y" * 4000, session) for number in range(300)]
        assert errors[:200] == [None] * 200
        assert all("too-many-bytes" in error["message"] for error in errors[260:])
        assert process.memory_info().rss - before < 100 * MEGABYTE
        serves(daemon)
        # The next session has room again.
        gone = daemon.http("DELETE", "/mcp", token=token, headers={"Mcp-Session-Id": session})
        assert gone.status == 204
        assert subscribe("x:" + "y" * 4000, initialize(daemon, token).headers["mcp-session-id"]) is None


@pytest.mark.anyio
async def test_a11_parked_calls_of_a_workspace_hold_no_more_bytes_than_its_share() -> None:
    tool = "workspace_set_metadata"
    write({}, permission={tool: "ask"})
    with start_daemon("limits.held_bytes_each=1000000") as daemon:
        workspaces("one")
        async with aiohttp.ClientSession() as http:
            caller = Caller(http, daemon.runtime["url"] + "/mcp", headers=bearer(token_of(daemon, "one")))
            large = {"key": "k", "value": "v" * 400_000}
            for _ in range(2):
                assert (await caller.call(tool, large))["result"]["resultType"] == "input_required"
            assert failure(await caller.call(tool, large)) == "too-many-bytes"
            small = {"key": "k", "value": "v"}
            assert (await caller.call(tool, small))["result"]["resultType"] == "input_required"
        serves(daemon)


@pytest.mark.anyio
async def test_a_token_runs_few_just_tasks_at_a_time_and_the_owners_wait_for_none(tmp_path: Path) -> None:
    recipe = "work n:\n  @read line < gate-{{n}}; echo $line\n"
    with start_daemon("just.tasks_each=2") as daemon:
        checkout = trusted_app(tmp_path / "app", {"justfile": recipe})
        path = made("one", "--no-agent", cwd=checkout)
        for number in range(1, 5):
            os.mkfifo(path / f"gate-{number}")

        def let_end(number: int) -> None:
            """Wait until the task reads its gate, and let it end."""
            with (path / f"gate-{number}").open("w") as gate:
                gate.write(f"{number}\n")

        async with aiohttp.ClientSession() as http:
            url = daemon.runtime["url"] + view_of(checkout, workspace="one")
            agent = Caller(http, url, headers=bearer(token_of(daemon, "one")))
            owner = Caller(http, url, headers=bearer(daemon.token))

            def begin(caller: Caller, number: int) -> "asyncio.Task[Message]":
                return caller.begin(
                    "run_just_task", {"task_name": "work", "arguments": [str(number)]}, progressToken=str(number)
                )

            async def reports(true: Callable[[list[Message]], bool]) -> None:
                """Wait until the progress that the agent has received meets the condition."""
                method, count = "notifications/progress", 0
                while not true([one["params"] for one in agent.all(method)]):
                    await agent.hears(method, count := max(count + 1, len(agent.all(method))))

            try:
                calls = [begin(agent, 1), begin(agent, 2)]
                await reports(lambda told: {one["progressToken"] for one in told} == {"1", "2"})
                calls.append(begin(agent, 3))
                waits = "waiting for other tasks of this workspace to end"
                await reports(lambda told: any(one["message"] == waits for one in told))
                with pytest.raises(OSError, match="No such device"):
                    # Nobody reads it.
                    os.open(path / "gate-3", os.O_WRONLY | os.O_NONBLOCK)
                own = begin(owner, 4)
                await asyncio.to_thread(let_end, 4)
                assert words(await own) == "4\n"
                assert not any(call.done() for call in calls)
                # The end of one lets the next one begin.
                for number, calling in ((1, calls[0]), (3, calls[2]), (2, calls[1])):
                    await asyncio.to_thread(let_end, number)
                    assert words(await calling) == f"{number}\n"
            finally:
                await agent.close()
                await owner.close()


def test_a11_a_batch_of_one_workspace_is_not_decoded_before_it_is_counted(daemon: Daemon) -> None:
    workspaces("one")
    process = psutil.Process(daemon.pid)
    before = process.memory_info().rss
    batch = b"[" + b",".join([b"{}"] * 15_000_000) + b"]"
    refused = daemon.http("POST", "/mcp", batch, token=token_of(daemon, "one"), headers=JSON)
    assert refused.status == 400 and "between 1 and 100 messages" in refused.json()["error"]["message"]
    assert process.memory_info().rss - before < 400 * MEGABYTE
    serves(daemon)


def test_a16_abandoned_sessions_make_room_before_those_in_use_and_close_no_endpoint(daemon: Daemon) -> None:
    workspaces("one", "two")
    # More than a workspace's token may have, and more than an endpoint may.
    for token, count in ((token_of(daemon, "one"), 300), (daemon.token, 10_100)):
        kept = initialize(daemon, token).headers["mcp-session-id"]
        assert is_alive(daemon, token, kept)
        first = initialize(daemon, token).headers["mcp-session-id"]
        abandon_sessions(daemon, token, count)
        assert is_alive(daemon, token, kept), "a used session stays"
        assert not is_alive(daemon, token, first), "one that was never used makes room"
        serves(daemon, *(token_of(daemon, name) for name in ("one", "two")))


def abandon_sessions(daemon: Daemon, token: str, count: int) -> None:
    """Open sessions, each of which is answered, and use none of them."""
    head = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{daemon.port}",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Content-Length: {len(HELLO)}",
    ]
    asked = "\r\n".join([*head, "", ""]).encode() + HELLO
    with daemon.connect() as sock, sock.makefile("rb") as answers:
        for _ in range(count // 20):
            sock.sendall(asked * 20)
            for _ in range(20):
                assert b" 200 " in answers.readline()
                length = 0
                while (line := answers.readline()) != b"\r\n":
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                answers.read(length)


def is_alive(daemon: Daemon, token: str, session: str) -> bool:
    """Use a session; whether it is still there."""
    answer = daemon.http("POST", "/mcp", call(1, "ping"), token=token, headers=JSON | {"Mcp-Session-Id": session})
    assert answer.status in (200, 404)
    return answer.status == 200


def test_a16_sessions_of_a_workspace_that_are_all_in_use_are_a_share_of_its_own() -> None:
    with start_daemon("limits.sessions_each=2", "limits.streams_each=3") as daemon:
        workspaces("one", "two")
        one, two = token_of(daemon, "one"), token_of(daemon, "two")
        used, unused = (initialize(daemon, one).headers["mcp-session-id"] for _ in range(2))
        assert is_alive(daemon, one, used)
        newest = initialize(daemon, one).headers["mcp-session-id"]
        assert is_alive(daemon, one, newest) and is_alive(daemon, one, used)
        assert not is_alive(daemon, one, unused), "one that was never used goes first"
        latest = initialize(daemon, one).headers["mcp-session-id"]
        assert is_alive(daemon, one, latest) and is_alive(daemon, one, used)
        assert not is_alive(daemon, one, newest), "then the one used longest ago"
        with contextlib.ExitStack() as stack:
            attacker = Attacker(daemon, one, stack)
            for session in (used, latest):
                listening = ("Accept: text/event-stream", f"Mcp-Session-Id: {session}")
                assert attacker.open("GET", "/mcp", *listening) == (200, "")
            refused = initialize(daemon, one)
            error = refused.json()["error"]
            assert (refused.status, error["code"], error["data"]) == (429, -32000, {"code": "too-many-sessions"})
            assert "limits.sessions_each" in error["message"] and "2 sessions" in error["message"]
            for token in (two, *[daemon.token] * 3):
                assert initialize(daemon, token).status == 200
            # A stream of any other kind takes the last place of its streams.
            assert attacker.open("GET", "/sse") == (200, "")
            full = daemon.http("GET", "/sse", token=one)
            error = full.json()["error"]
            assert (full.status, error["code"]) == (429, "too-many-streams")
            assert "limits.streams_each" in error["remedy"] and "3 open streams" in error["message"]
            serves(daemon)
            assert is_alive(daemon, one, used)


@pytest.mark.anyio
async def test_parked_calls_of_a_workspace_are_limited_and_the_owner_can_park_more() -> None:
    tool = "workspace_get_metadata"
    write({}, permission={tool: "ask"})
    with start_daemon("gateway.parked_calls=4", "gateway.parked_calls_each=2") as daemon:
        view = view_of(workspaces("one", "two"))
        # As many as one may, as many as workspaces may together, and the quarter that only the owner may have.
        shares = [("/mcp", token_of(daemon, "one"), 2), ("/mcp", token_of(daemon, "two"), 1), (view, daemon.token, 1)]
        async with aiohttp.ClientSession() as http:
            for path, token, count in shares:
                caller = Caller(http, daemon.runtime["url"] + path, headers=bearer(token))
                for _ in range(count):
                    assert (await caller.call(tool))["result"]["resultType"] == "input_required"
                refused = await caller.call(tool)
                assert failure(refused) == "too-many-questions"
                words = refused["result"]["content"][0]["text"]
                assert f"{'2 calls of yours' if count == 2 else 'calls'} already wait for an answer" in words


def test_a_workspace_creates_so_many_workspaces_with_its_token_and_its_own_count_too() -> None:
    with start_daemon("limits.workspaces_each=3") as daemon:
        checkout = workspaces("one", "two")
        one, two = token_of(daemon, "one"), token_of(daemon, "two")
        for name in ("a", "b"):
            assert create(daemon, one, name)["name"] == name
        # What it has created is of its family.
        assert create(daemon, token_of(daemon, "a"), "c")["name"] == "c"
        for token in (one, token_of(daemon, "b"), token_of(daemon, "c")):
            refused = create(daemon, token, "d")
            assert refused["code"] == "too-many-workspaces"
            assert refused["details"] == ["a", "b", "c"]
            assert "limits.workspaces_each" in refused["remedy"]
        assert create(daemon, two, "of-two")["name"] == "of-two"
        assert create(daemon, daemon.token, "of-owner")["name"] == "of-owner"
        made("by-hand", "--no-agent", cwd=checkout)
        assert rookery("ws", "rm", "b", cwd=checkout).returncode == 0
        assert create(daemon, one, "d")["name"] == "d"
        assert create(daemon, one, "e")["code"] == "too-many-workspaces"


@pytest.mark.anyio
async def test_a_workspace_starts_so_many_agents_with_its_token(tmp_path: Path) -> None:
    script = make_script(hello=[{"say": "hello yourself"}])
    limits = {"ROOKERY_LIMITS_AGENTS_EACH": "1"}
    async with start_system(script, make_repository(tmp_path / "app"), settings=limits) as system:
        await system.rest("POST", "/api/workspaces", {"name": "root", "agent": False, "wait": True})
        token = token_of(system.daemon, "root")

        async def create_by_root(name: str) -> Any:
            return await asyncio.to_thread(create, system.daemon, token, name)

        first = await system.show(await create_by_root("first"))
        # Nobody has to wait until the agent runs: one that is to start counts.
        refused = await create_by_root("second")
        assert (refused["code"], refused["details"]) == ("too-many-agents", ["first"])
        assert "limits.agents_each" in refused["remedy"]
        owners = await system.create("of-the-owner")
        for workspace in (first, owners):
            await system.until(workspace, lambda shown: shown["agent"]["state"] == "running")
        assert (await create_by_root("second"))["code"] == "too-many-agents"
        await system.rest("POST", f"{place_of(first)}/agent/stop")
        assert (await create_by_root("second"))["name"] == "second"
