"""With any number of workspace requests, the owner waits for one of them at most, and other tokens for few."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from rookery.wire.http.auth import OWNER, Headers, Principal
from rookery.wire.server.websocket import is_upgrade_request, serve_websocket
from rookery.wire.shares import Pacer
from tests.support.clock import SetClock
from tests.support.http.listener import reply, request, start_listener, within_limit
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("house.limits.shares")]

WORKSPACE = Principal("workspace", workspace=Path("/one"))

UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


def judge(method: str, path: str, headers: Headers) -> Principal:
    return WORKSPACE if path == "/workspace" else OWNER


async def test_one_request_of_a_workspace_is_started_in_each_pass_and_tokens_take_turns() -> None:
    pacer, started = Pacer(), list[str]()
    for name in ("a1", "a2", "a3", "b1"):
        pacer.start(name[0], partial(started.append, name))
    for expected in ("a1", "a1 a2", "a1 a2 b1", "a1 a2 b1 a3"):
        assert started == expected.split()
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    pacer.start("a", partial(started.append, "a4"))
    assert started[-1] == "a4"


async def test_while_the_owner_is_active_the_loop_is_idle_twice_as_long_as_busy() -> None:
    clock, busy, started = SetClock(), 0.0, asyncio.Queue[str]()
    pacer = Pacer(clock, lambda: busy)
    clock.now = 100.0
    pacer.note_owner_request()
    pacer.start("a", partial(started.put_nowait, "first"))
    assert started.get_nowait() == "first"
    busy, clock.now = 0.001, 100.0029
    pacer.start("a", partial(started.put_nowait, "second"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert started.empty()
    clock.now = 100.0031
    assert await within_limit(started.get()) == "second"

    # However busy the loop is, a request waits for ten milliseconds at most.
    await asyncio.sleep(0)
    busy, clock.now = 5.0, 100.0130
    pacer.start("a", partial(started.put_nowait, "third"))
    assert started.empty()
    clock.now = 100.0132
    assert await within_limit(started.get()) == "third"

    # The owner is no longer active.
    await asyncio.sleep(0)
    busy, clock.now = 9.0, 100.26
    pacer.start("a", partial(started.put_nowait, "fourth"))
    assert started.get_nowait() == "fourth"


async def test_long_work_for_a_workspace_is_followed_by_twice_as_long_a_pause() -> None:
    clock, started = SetClock(), asyncio.Queue[str]()
    pacer = Pacer(clock, lambda: 0.0)

    async def work() -> None:
        clock.now += 0.3
        pacer.note_owner_request()

    clock.now = 100.0
    await pacer.run("a", work())
    await asyncio.sleep(0)
    clock.now = 100.89
    pacer.note_owner_request()
    pacer.start("a", partial(started.put_nowait, "early"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert started.empty()
    clock.now = 100.91
    assert await within_limit(started.get()) == "early"

    # It is not charged while the owner is away.
    clock.now = 200.0
    pacer.charge(150.0)
    pacer.note_owner_request()
    clock.now += 0.02
    pacer.start("a", partial(started.put_nowait, "late"))
    await asyncio.sleep(0)
    assert started.get_nowait() == "late"


async def test_messages_on_a_websocket_are_paced_like_requests() -> None:
    served: list[str] = []

    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        while True:
            served.append(await socket.receive_text())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if is_upgrade_request(scope):
            await serve_websocket(echo, scope, receive, send, message_bytes=1000)
        else:
            served.append(scope["path"])
            await reply(send)

    async with start_listener(app, judge_of=lambda port: judge) as site:
        client, owner = await site.client(), await site.client()
        await client.send(request("GET", "/workspace", *UPGRADE))
        await within_limit(client.reader.readuntil(b"\r\n\r\n"))
        await owner.ask(request("GET", "/owner"))
        served.clear()
        client.writer.write(50 * (b"\x81\x82" + bytes(4) + b"{}"))
        owner.writer.write(request("GET", "/owner"))
        assert (await owner.answer()).status == 200
        assert len(served) < 5 and served[-1] == "/owner"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_request_of_the_owner_overtakes_those_that_a_workspace_sent_before_it(method: str) -> None:
    served: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        served.append(scope["path"])
        await reply(send)

    body = b"{}" if method == "POST" else None
    of_workspace, of_owner = (request(method, path, body=body) for path in ("/workspace", "/owner"))
    async with start_listener(app, judge_of=lambda port: judge) as site:
        crowd = [await site.client() for _ in range(50)]
        owner = await site.client()
        for client in crowd:
            await client.ask(of_workspace)
        await owner.ask(of_owner)
        served.clear()
        for client in crowd:
            client.writer.write(of_workspace)
        owner.writer.write(of_owner)
        for client in (owner, *crowd):
            assert (await client.answer()).status == 200
        assert served.count("/workspace") == 50
        assert served.index("/owner") < 5


async def test_a_request_of_the_owner_overtakes_those_that_have_waited_for_the_same_thing() -> None:
    served: list[str] = []
    arrived, ready = asyncio.Queue[None](), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/workspace":
            arrived.put_nowait(None)
            await ready.wait()
        served.append(scope["path"])
        await reply(send)

    async with start_listener(app, judge_of=lambda port: judge) as site:
        crowd = [await site.client() for _ in range(50)]
        owner = await site.client()
        await owner.ask(request("GET", "/owner"))
        for client in crowd:
            client.writer.write(request("GET", "/workspace"))
        for _ in crowd:
            await within_limit(arrived.get())
        served.clear()
        ready.set()
        owner.writer.write(request("GET", "/owner"))
        for client in (owner, *crowd):
            assert (await client.answer()).status == 200
        assert served.count("/workspace") == 50
        assert served.index("/owner") < 5


async def test_a_request_in_steps_has_the_results_errors_and_cancellations_of_its_work() -> None:
    pacer, ended = Pacer(), list[str]()

    async def work(future: asyncio.Future[str]) -> str:
        try:
            async with asyncio.timeout(30):
                return await future
        except ValueError:
            await asyncio.sleep(0)
            return "refused"
        finally:
            ended.append("ended")

    def start() -> tuple[asyncio.Future[str], asyncio.Task[str]]:
        future = asyncio.get_running_loop().create_future()
        return future, asyncio.ensure_future(pacer.run("a", work(future)))

    (first, returned), (second, raised), (_, cancelled), (fourth, too_late) = (start() for _ in range(4))
    await asyncio.sleep(0)
    first.set_result("done")
    second.set_exception(ValueError)
    cancelled.cancel()
    assert await returned == "done" and await raised == "refused"
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    # While it waits for its turn.
    fourth.set_result("done")
    pacer.start("b", lambda: None)
    await asyncio.sleep(0)
    too_late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await too_late
    assert len(ended) == 4
