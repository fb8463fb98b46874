"""The first address that responds is used, without waiting for the others."""

import asyncio
import contextlib
import socket
from collections.abc import Generator

import pytest

from rookery.wire.http_client import client
from rookery.wire.http_client.client import SocketAddress, dial, interleave_families
from tests.support.mcp.client import within_limit

pytestmark = pytest.mark.anyio

V4, V6 = socket.AF_INET, socket.AF_INET6


@contextlib.contextmanager
def listening() -> Generator[SocketAddress]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield V4, server.getsockname()


@contextlib.contextmanager
def silent() -> Generator[SocketAddress]:
    """Neither takes nor refuses: whoever waits to be accepted fills the queue."""
    with socket.socket() as server, contextlib.ExitStack() as stack:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        yield V4, server.getsockname()


def refusing() -> SocketAddress:
    with listening() as address:
        return address


def test_families_take_turns_and_the_preferred_one_begins() -> None:
    found = [(V6, 1), (V6, 2), (V6, 3), (V4, 4), (V4, 5)]
    assert [address for _, address in interleave_families(found)] == [1, 4, 2, 5, 3]
    assert interleave_families(found[:1]) == found[:1]


async def test_a_name_is_dialled() -> None:
    with listening() as (_, (_, port)), await within_limit(dial("localhost", port)) as made:
        assert made.getpeername() == ("127.0.0.1", port)


async def test_an_address_that_says_nothing_delays_the_next_one_only_a_little() -> None:
    with silent() as first, listening() as second, await within_limit(client._connect_first([first, second])) as made:
        assert made.getpeername() == second[1]


async def test_an_address_that_refuses_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.wire.http_client.client._STAGGER_SECONDS", 1000.0)
    with listening() as second, await within_limit(client._connect_first([refusing(), second])) as made:
        assert made.getpeername() == second[1]


async def test_where_all_refuse_that_is_the_error() -> None:
    with pytest.raises(ConnectionRefusedError):
        await within_limit(client._connect_first([refusing(), refusing()]))
    with pytest.raises(ConnectionRefusedError):
        await within_limit(dial("127.0.0.1", refusing()[1][1]))


async def test_whoever_gives_up_leaves_no_attempt_behind() -> None:
    with silent() as first, silent() as second:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await client._connect_first([first, second])
        assert len(asyncio.all_tasks()) <= 2


async def test_a_name_that_is_none_is_an_error() -> None:
    with pytest.raises(socket.gaierror):
        await within_limit(dial("no-such-host.invalid", 80))
