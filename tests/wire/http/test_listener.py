"""The listener holds its address exclusively, and stops in order."""

import asyncio
import contextlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from starlette.types import Receive, Scope, Send

from rookery.wire.http import listener as module
from rookery.wire.http.auth import (
    ANYBODY,
    OWNER,
    Authenticate,
    PeerProcess,
    Principal,
    Refusal,
    Tokens,
    make_socket_authenticator,
    make_tcp_authenticator,
)
from rookery.wire.http.connection import REFUSED_TOTAL
from rookery.wire.http.listener import (
    LOOPBACK_ADDRESS,
    Listener,
    bind_port,
    bind_unix,
    choose_socket_path,
    make_port_taken_error,
    read_peer_uid,
)
from rookery.wire.http.pool import HttpLimits
from tests.support.http import listener as support
from tests.support.http.listener import body_of, echo, reply, request, start_listener, within_limit
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="rk-", dir="/tmp") as made:
        yield Path(made)


class Slow:
    """Answers when it is let; what has begun can be waited for."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.ended: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await body_of(receive)
        if scope["path"] == "/slow":
            self.begun.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise
        self.ended.append("answered")
        await reply(send, b"done")


# ---- ports


@requirement("house.bind.port")
def test_a_port_is_ours_as_soon_as_it_is_bound() -> None:
    made = bind_port(0)
    assert made is not None
    with made:
        assert made.getsockname()[0] == LOOPBACK_ADDRESS
        assert not made.getblocking()
        with socket.create_connection(made.getsockname(), timeout=10):
            pass  # the kernel lets clients in before anybody serves them


@requirement("house.bind.conflict")
def test_a09_a_taken_port_is_told_and_left_alone() -> None:
    first = bind_port(0)
    assert first is not None
    with first:
        port = first.getsockname()[1]
        assert bind_port(port) is None
        assert str(port) in make_port_taken_error(port).message
    again = bind_port(port)
    assert again is not None
    again.close()


@requirement("house.bind.conflict")
@pytest.mark.parametrize("reuse", [0, 1])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a09_a_squatter_on_any_address_that_covers_ours_counts(host: str, reuse: int) -> None:
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        squatter.bind((host, 0))
        squatter.listen()
        assert bind_port(squatter.getsockname()[1]) is None


@requirement("house.bind.conflict")
def test_of_two_that_bind_at_once_only_one_gets_the_port() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((LOOPBACK_ADDRESS, 0))
        made = bind_port(other.getsockname()[1])
        assert made is not None
        with made, pytest.raises(OSError, match="in use"):
            other.listen()


@requirement("house.bind.port")
async def test_a_port_can_be_taken_again_right_after_it_was_served() -> None:
    async with start_listener(echo) as site:
        client = await site.client()
        await client.ask(request())
        port = site.port
    again = bind_port(port)  # the client is still there, and the port in TIME_WAIT
    assert again is not None
    again.close()


def test_a_port_that_only_root_may_bind_counts_as_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, address: object) -> None:
        raise PermissionError(13, "Permission denied")

    class Refusing(socket.socket):
        bind = refuse

    monkeypatch.setattr(module.socket, "socket", Refusing)
    assert bind_port(80) is None


@requirement("house.bind.loopback")
async def test_a08_only_127_0_0_1_is_bound() -> None:
    before = {one.laddr for one in psutil.Process().net_connections("inet") if one.status == psutil.CONN_LISTEN}
    async with start_listener(echo) as site:
        now = {one.laddr for one in psutil.Process().net_connections("inet") if one.status == psutil.CONN_LISTEN}
        assert {(one.ip, one.port) for one in now - before} == {("127.0.0.1", site.port)}


@requirement("house.bind.conflict")
async def test_a09_a_squatter_on_the_other_loopback_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET6) as squatter:
        try:
            squatter.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            squatter.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
        squatter.listen()
        port: int = squatter.getsockname()[1]
        made = bind_port(port)
        assert made is not None
        monkeypatch.setattr(support, "bind_port", Mock(return_value=made))
        async with start_listener(echo) as site:
            assert site.address == (LOOPBACK_ADDRESS, port)
            assert (await site.ask(request())).status == 200


# ---- the Unix socket


@requirement("house.runtime.file")
def test_the_unix_socket_is_private_from_its_first_moment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "s"
    modes: list[int] = []

    class Watching(socket.socket):
        def bind(self, address: object) -> None:
            super().bind(str(path))
            modes.append(stat.S_IMODE(path.lstat().st_mode))

    monkeypatch.setattr(module.socket, "socket", Watching)
    mask = os.umask(0)
    try:
        bind_unix(path).close()
        assert modes == [0o600]
        assert os.umask(0) == 0
    finally:
        os.umask(mask)


def test_a_stale_socket_file_is_replaced_and_a_failure_leaves_the_umask(folder: Path) -> None:
    path = folder / "s"
    with bind_unix(path):
        pass
    assert path.exists()
    with bind_unix(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    mask = os.umask(0o022)
    try:
        with pytest.raises(OSError):
            bind_unix(folder / ("x" * 200))
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(mask)


def test_a_path_too_long_for_a_socket_falls_back_to_a_short_one(folder: Path) -> None:
    for length in (1, 50, 87):
        state = Path("/" + "x" * (length - 1))
        assert choose_socket_path(state, lambda: folder) == state / "rookery.sock"
    for state in (Path("/" + "x" * 87), Path("/" + "é" * 50), Path("/" + "x" * 300)):
        assert choose_socket_path(state, lambda: folder) == folder / "rookery.sock"


def test_both_ends_of_a_unix_socket_are_this_user() -> None:
    left, right = socket.socketpair()
    with left, right:
        assert read_peer_uid(left) == read_peer_uid(right) == os.getuid()


@requirement("house.auth.token")
async def test_the_unix_socket_asks_for_no_token(folder: Path) -> None:
    async with start_listener(echo, judge_of=lambda port: make_socket_authenticator(), path=folder / "s") as site:
        client = await site.client()
        for _ in range(2):
            assert (await client.ask(request("POST", "/api/daemon/stop", body=b"{}"))).status == 200


FOREIGN = """
import os, socket, sys
client = socket.socket(socket.AF_UNIX)
os.setgid(65534)
os.setuid(65534)
client.settimeout(20)
client.connect(sys.argv[1])
try:
    client.sendall(b"GET / HTTP/1.1\\r\\nHost: here\\r\\n\\r\\n")
    got = client.recv(100)
except (BrokenPipeError, ConnectionResetError):
    got = b""
print(got)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
async def test_another_user_is_cut_off_before_a_byte_is_read(folder: Path) -> None:
    path = folder / "s"
    before = REFUSED_TOTAL.value("foreign-uid")
    async with start_listener(echo, judge_of=lambda port: make_socket_authenticator(), path=path) as site:
        folder.chmod(0o755)
        path.chmod(0o777)
        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-I", "-c", FOREIGN, str(path)],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert ran.stdout == b"b''\n", ran.stderr
        assert REFUSED_TOTAL.value("foreign-uid") == before + 1
        assert (await site.ask(request())).status == 200


async def test_a_peer_that_the_system_cannot_name_is_cut_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(connected: object) -> int:
        raise OSError(57, "Socket is not connected")

    async with start_listener(echo, judge_of=lambda port: make_socket_authenticator(), path=folder / "s") as site:
        monkeypatch.setattr(module, "read_peer_uid", unknown)
        client = await site.client()
        with contextlib.suppress(ConnectionError):
            await client.send(request())
        assert await client.rest() == b""


# ---- who is at the other end


@requirement("ws.agent.principal")
async def test_nothing_is_looked_at_before_it_is_known_who_connects_and_that_is_asked_once(folder: Path) -> None:
    asked, known = asyncio.Queue[PeerProcess | None](), asyncio.Event()
    passed: list[str] = []

    async def identify(peer: PeerProcess | None) -> Authenticate:
        asked.put_nowait(peer)
        await known.wait()
        return make_socket_authenticator(
            Principal("workspace", workspace=folder), Refusal(403, "forbidden", "not yours")
        )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append(scope["path"])
        await reply(send, await body_of(receive))

    async with start_listener(
        app, judge_of=lambda port: make_socket_authenticator(), path=folder / "s", identify=identify
    ) as site:
        client = await site.client()
        body = b'"' + b"x" * 3_000_000 + b'"'
        sending = asyncio.ensure_future(client.send(request("POST", "/mcp", body=body), request("POST", "/mcp")))
        peer = await within_limit(asked.get())
        assert peer is not None and peer.pid == os.getpid()
        gone = await site.client()
        assert await within_limit(asked.get()) == peer
        gone.reset()
        assert passed == []
        known.set()
        assert (await client.answer()).body == body
        await sending
        assert (await client.answer()).status == 200
        assert not site.listener.pool.shares.streams, "a connection that is identified is no stream"
        assert (await client.ask(request("GET", "/api/status"))).code == "forbidden"
        assert passed == ["/mcp", "/mcp"] and asked.empty()
        assert (await site.ask(request("GET", "/api/health"))).status == 200
        assert asked.qsize() == 1


async def test_where_it_cannot_be_found_out_who_connects_nothing_but_health_is_open(folder: Path) -> None:
    async def identify(peer: PeerProcess | None) -> Authenticate:
        raise OSError("no such process")

    async with start_listener(
        echo, judge_of=lambda port: make_socket_authenticator(), path=folder / "s", identify=identify
    ) as site:
        assert (await site.ask(request("POST", "/mcp", body=b"{}"))).status == 403
        assert (await site.ask(request("GET", "/api/health"))).status == 200


async def test_on_a_port_the_address_tells_who_connects() -> None:
    seen: list[tuple[str, int]] = []

    async def identify(address: tuple[str, int]) -> Authenticate:
        seen.append(address)
        return make_socket_authenticator(OWNER if address == seen[0] else ANYBODY)

    async with start_listener(echo, identify_address=identify) as site:
        first = await site.client()
        assert (await first.ask(request("GET", "/api/status"))).status == 200
        assert (await (await site.client()).ask(request("GET", "/api/status"))).status == 403
        assert (await first.ask(request("GET", "/api/status"))).status == 200
        assert seen[0] == first.writer.get_extra_info("sockname") and len(seen) == 2


# ---- the stop


async def test_a_stop_closes_idle_connections_at_once_and_lets_running_ones_end() -> None:
    async with start_listener(app := Slow()) as site:
        silent, half, idle, running = [await site.client() for _ in range(4)]
        await half.send(b"GET / HT")
        await idle.ask(request())
        await running.send(request("GET", "/slow"), request("GET", "/pipelined"))
        await within_limit(app.begun.wait())
        await site.connections.reach(4)
        stopping = asyncio.ensure_future(site.listener.stop(60))
        for client in (silent, half, idle):
            assert await client.rest() == b""
        assert not stopping.done()
        app.go.set()
        answer = await running.answer()
        assert (answer.body, answer.kept) == (b"done", False)
        assert await running.rest() == b""
        await within_limit(stopping)
        assert app.ended == ["answered", "answered"]


async def test_a_stop_cuts_off_what_outlasts_its_grace_and_leaves_no_task() -> None:
    async with start_listener(app := Slow()) as site:
        client = await site.client()
        await client.send(request("GET", "/slow"))
        await within_limit(app.begun.wait())
        await within_limit(site.listener.stop(0.05))
        assert not site.connections
        assert len(site.door.tasks) == 0
        assert await client.rest() == b""
        assert app.ended == ["cancelled"]


async def test_after_a_stop_nobody_is_let_in() -> None:
    async with start_listener(echo) as site:
        late = await site.client()  # perhaps not accepted yet
        await within_limit(site.listener.stop(60))
        assert await late.rest() == b""
        with pytest.raises(ConnectionRefusedError):
            await site.client()


async def test_whoever_was_accepted_while_the_stop_began_is_cut_off() -> None:
    async with start_listener(echo) as site:
        site.door.is_closing = True
        client = await site.client()
        assert await client.rest() == b""
        await site.connections.reach(0)


async def test_a_listener_that_never_started_can_be_stopped() -> None:
    made = bind_port(0)
    assert made is not None
    await within_limit(Listener(made, echo, make_tcp_authenticator(0, Tokens()), HttpLimits()).stop(60))
    assert made.fileno() == -1
