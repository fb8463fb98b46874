"""The daemon of a demo always ends."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from rookery.demo import daemon as daemon_module
from rookery.demo.daemon import DemoDaemon
from rookery.system.fs.lock import is_held
from rookery.system.fs.paths import lock_file
from tests.support.daemon.foreground import read_daemon
from tests.support.daemon.process import kill

pytestmark = pytest.mark.anyio


async def test_it_is_started_told_of_and_ended(state: Path) -> None:
    daemon, told = DemoDaemon(state), list[str]()
    await daemon.start(told.append)
    assert told[0] == "starting the daemon"
    assert is_held(lock_file(state))
    assert read_daemon(state).port >= 24_000, "the usual ones are for the user's own"
    await daemon.stop()
    assert not is_held(lock_file(state))
    assert not (state / "daemon.json").exists()
    await daemon.stop()


async def test_a_start_that_is_called_off_leaves_no_daemon(state: Path) -> None:
    daemon, begun = DemoDaemon(state), asyncio.Event()
    starting = asyncio.ensure_future(daemon.start(lambda _: begun.set()))
    await asyncio.wait_for(begun.wait(), 60)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await daemon.stop()
    assert not is_held(lock_file(state))


async def test_one_that_is_forced_is_gone_at_once(state: Path) -> None:
    daemon = DemoDaemon(state)
    await daemon.start(lambda _: None)
    await asyncio.to_thread(daemon.force)
    assert not is_held(lock_file(state))


async def test_one_that_was_killed_needs_no_ending(state: Path) -> None:
    daemon = DemoDaemon(state)
    await daemon.start(lambda _: None)
    await asyncio.to_thread(kill, read_daemon(state).pid)
    await daemon.stop()
    assert not is_held(lock_file(state))
    assert os.environ["ROOKERY_HOME"] == str(state)


async def test_a_port_that_is_taken_is_left_to_whoever_has_it(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        wanted = iter([port, daemon_module._PORTS[7]])
        monkeypatch.setattr(daemon_module, "new_id", lambda: f"{next(wanted) - daemon_module._PORTS[0]:x}")
        monkeypatch.setattr(daemon_module, "_PORTS", range(daemon_module._PORTS[0], 65_536))
        daemon = DemoDaemon(state)
        await daemon.start(lambda _: None)
        assert read_daemon(state).port == daemon_module._PORTS[7]
        await daemon.stop()
