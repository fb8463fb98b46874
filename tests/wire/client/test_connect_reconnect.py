"""Lost connections are noticed at once and reopened on the next use, with growing pauses after failures."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from rookery.system.errors import RookeryError
from rookery.wire.client.client import Client, Timeouts
from rookery.wire.client.connect import ConnectionState, Era, ReconnectingClient, connect_client
from rookery.wire.client.http import HttpTransport, SseTransport
from rookery.wire.client.transport import ClientTransport
from rookery.wire.http_client.client import HttpClient
from rookery.wire.timing import compute_backoff
from tests.support.clock import SetClock
from tests.support.daemon.process import wait_dead
from tests.support.mcp.client import (
    IDENTITY,
    LIMIT,
    HandshakeHandler,
    ScriptedHttpServer,
    SseHandler,
    connect,
    odd,
    text,
    within_limit,
)
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


class Held:
    """A lasting connection to whatever `channel` makes, and all that was heard of it."""

    def __init__(self, channel: Callable[[], ClientTransport]) -> None:
        self.channel = channel
        self.clock = SetClock()
        self.known: list[Era | None] = []
        self.states: list[tuple[ConnectionState, str | None]] = []
        self.lasting = ReconnectingClient(self._connect, self._told, clock=self.clock)
        self._changed = asyncio.Event()

    async def _connect(self, known: Era | None) -> tuple[Client, Era]:
        self.known.append(known)
        limits = Timeouts(startup=LIMIT, catalog=LIMIT, execution=LIMIT)
        return await connect_client(lambda channel: Client(channel, IDENTITY, limits), self.channel(), known_era=known)

    def _told(self, state: ConnectionState, error: str | None) -> None:
        self.states.append((state, error))
        self._changed.set()

    async def becomes(self, state: ConnectionState) -> str | None:
        """The error that came with it."""
        async with asyncio.timeout(LIMIT):
            while not self.states or self.states[-1][0] != state:
                self._changed.clear()
                await self._changed.wait()
        return self.states[-1][1]

    async def pid(self) -> int:
        client = await within_limit(self.lasting.get_client())
        return text(await within_limit(client.call_tool("pid", {})))

    async def die(self) -> None:
        client = await within_limit(self.lasting.get_client())
        with pytest.raises(RookeryError, match="exited with code 4"):
            await within_limit(client.call_tool("die", {"code": 4}))

    async def fails(self, match: str) -> None:
        with pytest.raises(RookeryError, match=match) as caught:
            await within_limit(self.lasting.get_client())
        assert caught.value.code == "upstream-failed"


@asynccontextmanager
async def held(channel: Callable[[], ClientTransport] = odd) -> AsyncGenerator[Held]:
    made = Held(channel)
    try:
        yield made
    finally:
        await within_limit(made.lasting.close())


@requirement("wire.client.reconnect", "hub.pool.broken")
def test_pauses_double_up_to_a_minute() -> None:
    assert [compute_backoff(failures) for failures in range(9)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert compute_backoff(10**9) == 60


# ---- one connection for all


@requirement("wire.client.reconnect")
async def test_waiting_callers_share_one_connection_and_one_that_leaves_affects_no_other() -> None:
    async with held() as one:
        waiting = [asyncio.create_task(one.lasting.get_client()) for _ in range(10)]
        await one.becomes("pending")
        waiting[0].cancel()
        found = await within_limit(asyncio.gather(*waiting[1:]))
        with pytest.raises(asyncio.CancelledError):
            await within_limit(waiting[0])
        assert (len(set(map(id, found))), one.known) == (1, [None])
        assert one.lasting.connected is found[0] is await within_limit(one.lasting.get_client())
        assert one.states == [("pending", None), ("connected", None)]


async def test_one_that_is_connected_for_nobody_any_more_is_there_for_the_next() -> None:
    async with held() as one:
        waiting = asyncio.create_task(one.lasting.get_client())
        await one.becomes("pending")
        waiting.cancel()
        await one.becomes("connected")
        assert one.lasting.connected is not None
        await one.pid()
        assert len(one.known) == 1


# ---- lost


@requirement("wire.client.reconnect")
async def test_a_connection_that_lived_is_made_anew_at_the_next_use_and_not_before() -> None:
    async with held() as one:
        before = await one.pid()
        client = await within_limit(one.lasting.get_client())
        one.clock.now += 60
        await one.die()
        assert await one.becomes("failed") == "it exited with code 4"
        assert (client.close_reason is not None, one.lasting.connected, one.known) == (True, None, [None])
        assert await one.pid() != before
        assert one.known == [None, "handshake"]
        assert [state for state, _ in one.states] == ["pending", "connected", "failed", "pending", "connected"]


@requirement("wire.client.reconnect", "hub.pool.broken")
async def test_a_server_that_dies_soon_is_left_alone_for_longer_and_longer() -> None:
    async with held() as one:
        for number, seconds in enumerate((1, 2, 4), 1):
            await one.die()
            assert "the connection was lost: it exited with code 4" in str(await one.becomes("backoff"))
            assert (one.lasting.failures, one.lasting.is_paused) == (number, True)
            await one.fails(f"exited with code 4; the next attempt is possible in {seconds} s")
            one.clock.now += seconds / 2
            await one.fails(f"the next attempt is possible in {max(1, seconds // 2)} s")
            assert len(one.known) == number
            one.clock.now += seconds / 2
        await one.pid()
        # One that lives again has made up for it.
        one.clock.now += 60
        await one.die()
        await one.becomes("failed")
        assert (one.lasting.failures, one.lasting.is_paused) == (0, False)


@requirement("wire.client.reconnect")
async def test_a_server_that_cannot_be_started_fails_at_once_during_its_pause() -> None:
    async with held(lambda: odd("--exit", "3", "TOKEN is not set")) as one:
        await one.fails("TOKEN is not set")
        assert "TOKEN is not set" in str(await one.becomes("backoff"))
        await one.fails("TOKEN is not set.*; the next attempt is possible in 1 s")
        assert len(one.known) == 1
        one.channel = odd
        one.lasting.retry_now()
        await one.pid()
        assert len(one.known) == 2


async def test_all_who_waited_for_what_failed_are_told_so() -> None:
    async with held(lambda: odd("--exit", "3", "no")) as one:
        found = await within_limit(
            asyncio.gather(*(one.lasting.get_client() for _ in range(5)), return_exceptions=True)
        )
        assert all(isinstance(error, RookeryError) for error in found)
        assert len(set(map(id, found))) == 5
        assert len(one.known) == 1


@requirement("wire.client.reconnect")
async def test_a_call_that_may_have_run_is_not_repeated() -> None:
    async with held() as one:
        client = await within_limit(one.lasting.get_client())
        one.clock.now += 60
        calls = [asyncio.create_task(client.call_tool("hang", {})) for _ in range(3)]
        await one.die()
        for call in calls:
            with pytest.raises(RookeryError, match="exited with code 4"):
                await within_limit(call)
        client = await within_limit(one.lasting.get_client())
        told = text(await within_limit(client.call_tool("told", {})))
        assert told == ["initialize", "notifications/initialized", "tools/call"]


async def test_calls_that_find_no_room_any_more_at_one_that_has_ended_are_told_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = odd()
    async with held(lambda: channel) as one:
        client = await within_limit(one.lasting.get_client())
        assert channel._child is not None
        drained, go = channel._child.wait_drained, asyncio.Event()

        async def slowly(seconds: float) -> bool:
            await go.wait()
            return await drained(seconds)

        monkeypatch.setattr(channel._child, "wait_drained", slowly)
        dying = asyncio.create_task(one.die())
        await within_limit(channel._child.wait())
        calls = [asyncio.create_task(client.call_tool("hang", {})) for _ in range(3)]
        await asyncio.wait(calls, timeout=0)
        assert not any(call.done() for call in calls)
        go.set()
        for call in calls:
            with pytest.raises(RookeryError, match="exited with code 4"):
                await within_limit(call)
        await dying


async def test_a_stream_of_the_older_kind_that_ends_is_a_connection_lost() -> None:
    old = SseHandler()
    async with HttpClient() as http, ScriptedHttpServer(old) as server:
        gone = asyncio.Event()
        async with connect(SseTransport(http, server.url), known="sse") as met:
            met.client.on_lost = lambda reason: gone.set()
            assert met.client.close_reason is None
            await old.streams[0].end()
            await within_limit(gone.wait())
            assert met.client.close_reason == "the stream ended"


async def test_over_streamable_http_nothing_is_lost_between_two_requests() -> None:
    handler = HandshakeHandler()
    server = ScriptedHttpServer(handler)
    await server.start()
    async with HttpClient() as http:
        async with connect(HttpTransport(http, server.url)) as met:
            gone: list[str] = []
            met.client.on_lost = gone.append
            await server.stop()
            handler.forget()
            await server.start()
            await within_limit(met.client.call_tool("echo", {}))
            assert (met.client.close_reason, gone) == (None, [])
        assert (met.client.close_reason, gone) == ("closed", [])
    await server.stop()


# ---- ended by us


async def test_one_that_was_stopped_is_connected_again_by_the_next_use() -> None:
    async with held() as one:
        pid = await one.pid()
        await within_limit(one.lasting.stop())
        wait_dead(pid)
        assert (one.states[-1], one.lasting.connected) == (("stopped", None), None)
        assert await one.pid() != pid
        assert one.lasting.failures == 0


@pytest.mark.parametrize("for_good", [False, True])
async def test_one_that_is_stopped_while_it_connects_tells_whoever_waits(for_good: bool) -> None:
    async with held(lambda: odd("--mute")) as one:
        waiting = asyncio.create_task(one.lasting.get_client())
        await one.becomes("pending")
        await within_limit(one.lasting.close() if for_good else one.lasting.stop())
        with pytest.raises(RookeryError, match="stopped while connecting"):
            await within_limit(waiting)
        assert one.states[-1] == ("stopped", None)


async def test_one_that_was_closed_is_not_connected_again() -> None:
    async with held() as one:
        pid = await one.pid()
        await within_limit(one.lasting.close())
        wait_dead(pid)
        await one.fails("closed")
        assert len(one.known) == 1


async def test_the_next_is_not_started_before_the_last_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with held() as one:
        client = await within_limit(one.lasting.get_client())
        close, go = client.close, asyncio.Event()

        async def slowly() -> None:
            await go.wait()
            await close()

        monkeypatch.setattr(client, "close", slowly)
        stopping = asyncio.create_task(one.lasting.stop())
        await one.becomes("stopped")
        connecting = asyncio.create_task(one.lasting.get_client())
        await one.becomes("pending")
        stopping.cancel()
        await within_limit(asyncio.wait([stopping]))
        assert len(one.known) == 1
        go.set()
        await within_limit(connecting)
        assert len(one.known) == 2


async def test_one_that_is_of_no_use_is_ended_and_counts_as_failed() -> None:
    async with held() as one:
        pid = await one.pid()
        client = await within_limit(one.lasting.get_client())
        await within_limit(one.lasting.fail(client, RookeryError("timeout", "no list came", "look at it")))
        wait_dead(pid)
        assert one.states[-1] == ("backoff", "no list came")
        await one.fails("no list came; the next attempt is possible in 1 s")


async def test_what_fails_on_a_connection_that_is_gone_does_not_end_the_next() -> None:
    async with held() as one:
        before = await within_limit(one.lasting.get_client())
        await within_limit(one.lasting.stop())
        pid = await one.pid()
        await within_limit(one.lasting.fail(before, RookeryError("timeout", "no list came")))
        assert one.states[-1] == ("connected", None)
        assert await one.pid() == pid


async def test_a_mistake_of_ours_in_connecting_is_an_error_like_any_other(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> ClientTransport:
        raise ValueError("a mistake")

    async with held(broken) as one:
        with pytest.raises(RookeryError, match="ValueError: a mistake") as caught:
            await within_limit(one.lasting.get_client())
        assert caught.value.code == "internal-error"
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
        caplog.clear()
        await one.fails("the next attempt is possible in 1 s")
