"""The port of a workspace's server: held as soon as it is chosen, kept, and used by no other workspace."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rookery.daemon.services.endpoint_ports import BoundPort, EndpointPorts
from rookery.system.errors import RookeryError
from rookery.system.store import Store
from tests.support.daemon.endpoints import hold_port, is_free
from tests.support.daemon.process import unused_port
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("ws.endpoint.port")]


class Ports:
    """Those of one store; whatever is held is let go at the end."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store, self._folder = store, folder
        self.held: list[BoundPort] = []

    def own(self, name: str) -> Path:
        (made := self._folder / name).mkdir(exist_ok=True)
        return made

    async def hold(self, name: str, first: int) -> BoundPort:
        held = await EndpointPorts(self._store, first).bind(self.own(name))
        self.held.append(held)
        return held


@asynccontextmanager
async def ports(state: Path) -> AsyncGenerator[Ports]:
    store = Store(state / "rookery.db")
    await store.open()
    made = Ports(store, state)
    try:
        yield made
    finally:
        for one in made.held:
            one.socket.close()
        await store.close()


async def test_a_port_is_held_before_anybody_knows_of_it(state: Path) -> None:
    first = unused_port()
    async with ports(state) as made:
        chooser = EndpointPorts(made._store, first)
        names = ("one", "two", "three", "four")
        made.held += await asyncio.gather(*(chooser.bind(made.own(name)) for name in names))
        assert sorted(one.port for one in made.held) == list(range(first, first + 4))
        assert not any(is_free(one.port) for one in made.held)


async def test_a_workspace_gets_the_port_it_had_and_no_other_gets_that(state: Path) -> None:
    first = unused_port()
    async with ports(state) as made:
        assert (await made.hold("one", first)).port == first
        made.held.pop().socket.close()
        assert (await made.hold("two", first)).port == first + 1
        again = await made.hold("one", first)
        assert (again.port, again.previous) == (first, None)


async def test_a_port_of_a_workspace_that_is_gone_is_free_again(state: Path) -> None:
    first = unused_port()
    async with ports(state) as made:
        (await made.hold("one", first)).socket.close()
        made.own("one").rmdir()
        assert (await made.hold("two", first)).port == first


async def test_a_base_that_was_moved_moves_those_below_it(state: Path) -> None:
    first = unused_port()
    async with ports(state) as made:
        (await made.hold("one", first)).socket.close()
        moved = await made.hold("one", first + 5)
        assert (moved.port, moved.previous) == (first + 5, None)


async def test_a_port_that_is_taken_only_on_the_other_loopback_is_passed_over(state: Path) -> None:
    """Whoever says `localhost` would reach the other program, and give it the token."""
    first = unused_port()
    async with ports(state) as made:
        with socket.socket(socket.AF_INET6) as other:
            other.bind(("::1", first))
            other.listen()
            assert (await made.hold("one", first)).port == first + 1


async def test_where_nothing_else_is_left_a_closed_workspace_gives_its_port(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = unused_port()
    monkeypatch.setattr("rookery.daemon.services.endpoint_ports._LAST_PORT", first + 1)
    async with ports(state) as made:
        with hold_port(first):
            (await made.hold("one", first)).socket.close()
            assert (await made.hold("two", first)).port == first + 1
            with pytest.raises(RookeryError, match=f"from {first} upwards is free"):
                await made.hold("one", first)
