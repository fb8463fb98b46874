"""A child on a pseudo-terminal."""

import asyncio
import errno
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.process.child import Child
from rookery.system.process.environment import allowed_environment
from rookery.system.process.pty import Pty
from rookery.system.process.spawn import Spawner
from tests.support.daemon.process import alive, wait_dead
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

TREE = str(Path(__file__).parents[2] / "programs" / "tree.py")
# Its size after each change, and each line that it is given. A print would not stand being interrupted by another.
TELLS = """
import os, signal, sys
tell = lambda what: os.write(1, f"{what}\\n".encode())
signal.signal(signal.SIGWINCH, lambda *_: tell(os.get_terminal_size()))
tell(f"{os.ttyname(0)} {os.get_terminal_size()}")
with open("/dev/tty") as terminal:
    for line in iter(terminal.readline, ""):
        tell([line.strip()])
"""
SECONDS = 20


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


class Drawn:
    """What the child has drawn."""

    def __init__(self) -> None:
        self.text = ""
        self._news = asyncio.Event()

    def data(self, data: bytes) -> None:
        self.text += data.decode()
        self._news.set()

    def end(self) -> None:
        self._news.set()

    async def until(self, wanted: str) -> str:
        async with asyncio.timeout(SECONDS):
            while wanted not in self.text:
                self._news.clear()
                await self._news.wait()
        return self.text


@asynccontextmanager
async def started(*argv: str) -> AsyncGenerator[tuple[Pty, Child, Drawn]]:
    spawner, drawn = Spawner(new_id()), Drawn()
    pty = Pty(70, 20, drawn)
    try:
        yield pty, await pty.start(spawner, argv, name="tui", cwd=Path("/"), env=allowed_environment()), drawn
    finally:
        await spawner.stop_all()
        pty.close()


async def test_it_is_the_childs_own_terminal_with_its_size_keys_and_end() -> None:
    async with started(sys.executable, "-c", TELLS) as (pty, child, drawn):
        assert "/dev/" in await drawn.until("columns=70, lines=20")
        assert psutil.Process(child.pid).terminal() is not None and os.getsid(child.pid) == child.pid
        pty.resize(101, 33)
        pty.write(b"hello\r")
        await drawn.until("['hello']")
        await drawn.until("columns=101, lines=33")
        pty.write(b"\x03")
        async with asyncio.timeout(SECONDS):
            await child.wait()


async def test_what_cannot_be_run_says_so_on_the_terminal() -> None:
    async with started("/no/such/program") as (_, child, drawn):
        async with asyncio.timeout(SECONDS):
            assert await child.wait() in (126, 127)
        assert "/no/such/program" in await drawn.until("not found")


@requirement("term.close.killed")
async def test_d05_all_that_it_started_is_gone_with_it() -> None:
    async with started(sys.executable, TREE, "deaf", "plain", "setsid", "double") as (pty, child, drawn):
        said = (await drawn.until("ready")).split()
        pids = [int(word) for word in said if word.isdecimal()]
        assert len(pids) == 4 and all(alive(pid) for pid in pids)
        await child.stop()
        assert [pid for pid in pids if alive(pid)] == []
        pty.close()
        pty.close()


async def test_it_is_hung_up_when_our_end_is_gone() -> None:
    """As when the daemon is killed: then nobody is there to end it."""
    async with started("/bin/sh", "-c", "echo begun; sleep 600 & wait") as (pty, child, drawn):
        await drawn.until("begun")
        pty.close()
        await asyncio.to_thread(wait_dead, child.pid)
        assert not alive(child.pid)


async def test_where_the_system_has_no_terminal_left_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> tuple[int, int]:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "openpty", none_left)
    with pytest.raises(RookeryError, match="No space left") as caught:
        Pty(80, 24, Drawn())
    assert caught.value.code == "spawn-failed" and caught.value.remedy


async def test_one_that_is_made_half_way_only_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    left, dup = list[bool](), os.dup

    def soon_too_many(handle: int) -> int:
        if not left.pop():
            return dup(handle)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "dup", soon_too_many)
    for many in ([True], [True, False]):
        left, before = many, len([*Path("/proc/self/fd").iterdir()])
        with pytest.raises(RookeryError, match="Too many open files"):
            Pty(80, 24, Drawn())
        assert not left and len([*Path("/proc/self/fd").iterdir()]) == before


async def test_typing_blindly_into_a_child_that_never_reads_takes_no_memory_without_end() -> None:
    async with started("/bin/sh", "-c", "stty raw -echo; echo begun; exec sleep 600") as (pty, _, drawn):
        await drawn.until("begun")
        for _ in range(100):
            pty.write(b"x" * 100_000)
        assert len(pty._writer._buffer) < 2_000_000
