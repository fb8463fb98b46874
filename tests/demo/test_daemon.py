"""The daemon of a demo ends, however it was come to that."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from rookery.demo import daemon as house_module
from rookery.demo.daemon import DemoDaemon
from rookery.system.fs.lock import is_held
from rookery.system.fs.paths import lock_file
from tests.support.daemon.foreground import house_of
from tests.support.daemon.process import kill

pytestmark = pytest.mark.anyio


async def test_it_is_started_told_of_and_ended(state: Path) -> None:
    house, told = DemoDaemon(state), list[str]()
    await house.start(told.append)
    assert told[0] == "starting the daemon"
    assert is_held(lock_file(state))
    assert house_of(state).port >= 24_000, "the usual ones are for the user's own"
    await house.stop()
    assert not is_held(lock_file(state))
    assert not (state / "daemon.json").exists()
    await house.stop()


async def test_a_start_that_is_called_off_leaves_no_daemon(state: Path) -> None:
    house, begun = DemoDaemon(state), asyncio.Event()
    starting = asyncio.ensure_future(house.start(lambda _: begun.set()))
    await asyncio.wait_for(begun.wait(), 60)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await house.stop()
    assert not is_held(lock_file(state))


async def test_one_that_is_forced_is_gone_at_once(state: Path) -> None:
    house = DemoDaemon(state)
    await house.start(lambda _: None)
    await asyncio.to_thread(house.force)
    assert not is_held(lock_file(state))


async def test_one_that_was_killed_needs_no_ending(state: Path) -> None:
    house = DemoDaemon(state)
    await house.start(lambda _: None)
    await asyncio.to_thread(kill, house_of(state).pid)
    await house.stop()
    assert not is_held(lock_file(state))
    assert os.environ["ROOKERY_HOME"] == str(state)


async def test_a_port_that_is_taken_is_left_to_whoever_has_it(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        wanted = iter([port, house_module._PORTS[7]])
        monkeypatch.setattr(house_module, "new_id", lambda: f"{next(wanted) - house_module._PORTS[0]:x}")
        monkeypatch.setattr(house_module, "_PORTS", range(house_module._PORTS[0], 65_536))
        house = DemoDaemon(state)
        await house.start(lambda _: None)
        assert house_of(state).port == house_module._PORTS[7]
        await house.stop()
