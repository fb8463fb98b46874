"""The pool of terminals: limits, idle time, and that none is left. Any program can run in them."""

import asyncio
import os
import random
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from rookery.agents.opencode.events import ProcessEnded, SessionDeleted, SessionUpdated
from rookery.agents.opencode.records import Session
from rookery.agents.run import AgentRun
from rookery.sessions.terminal.pool import PooledTerminal, TerminalPool
from rookery.sessions.terminal.terminal import InterfaceLaunch, Terminal
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.process import table
from rookery.system.process.spawn import Spawner
from tests.support.clock import SetClock
from tests.support.daemon.process import alive, wait_dead
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

TREE = Path(__file__).parents[2] / "programs" / "tree.py"
SECONDS = 20


class Pool:
    def __init__(self, folder: Path, words: str, **more: Any) -> None:
        program = folder / "opencode"
        program.write_text(f'#!/bin/sh\necho "$@"\nexec {sys.executable} {TREE} {words}\n')
        program.chmod(0o755)
        self.clock, self.spawner = SetClock(), Spawner(new_id())
        self.terminals = TerminalPool(self.spawner, self._user, clock=self.clock, **more)
        # What is used of the life of an agent.
        process = SimpleNamespace(url="http://127.0.0.1:1", password="a password", is_alive=True, sandbox=None)
        installed = SimpleNamespace(installation=SimpleNamespace(opencode=program))
        client = SimpleNamespace(directory=str(program.parent))
        self.life = cast(AgentRun, SimpleNamespace(started=installed, process=process, client=client, listeners=[]))

    async def _user(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "TMUX": "outside"}

    async def pid(self, session: str, *, at: float = 0.0) -> int:
        """That of a session's terminal, used once and looked at until it is whole."""
        self.clock.now = at
        async with self.terminals.use(self.life, session) as seat:
            assert await seat.terminal.wait_until(lambda: "ready" in seat.terminal.text or None, SECONDS)
        return self.terminals.pids()[session]

    def left(self) -> list[int]:
        return [one.pid for one in table.find_marked(table.match_instance(self.spawner.instance))]


@asynccontextmanager
async def a_pool(folder: Path, words: str = "", **more: Any) -> AsyncGenerator[Pool]:
    pool = Pool(folder, words, **more)
    try:
        yield pool
        await pool.terminals.close()
        assert pool.left() == [] and not pool.life.listeners and len(pool.terminals._tasks) == 0
    finally:
        await pool.spawner.stop_all()


def test_f01_the_environment_has_the_password_and_nothing_of_the_daemons_terminal() -> None:
    user = {"HOME": "/home/you", "TMUX": "x", "TERM": "dumb", "TERM_PROGRAM": "y", "NO_COLOR": "1", "KITTY_PID": "1"}
    made = InterfaceLaunch(Path("/bin/opencode"), "http://127.0.0.1:1", "a password", user).environment
    assert made.keys() & {"TMUX", "TERM_PROGRAM", "NO_COLOR", "KITTY_PID"} == set()
    assert made["HOME"] == "/home/you" and made["TERM"] == "xterm-256color" and made["LANG"] == "C.UTF-8"
    assert made["OPENCODE_SERVER_PASSWORD"] == "a password" and made["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"


@requirement("term.close.killed")
async def test_it_is_started_on_demand_and_once_however_many_want_it(tmp_path: Path) -> None:
    async with a_pool(tmp_path) as pool:
        assert pool.terminals.pids() == {}
        pids = await asyncio.gather(*(pool.pid("ses_1") for _ in range(5)))
        assert len(set(pids)) == 1 and pool.spawner._count == 1
        words = Path(f"/proc/{pids[0]}/cmdline").read_bytes()
        assert b"tree.py" in words and b"a password" not in words
        assert Path(f"/proc/{pids[0]}/cwd").readlink() == Path("/")


async def test_the_one_that_was_idle_longest_is_ended_for_another(tmp_path: Path) -> None:
    async with a_pool(tmp_path, max_terminals=2) as pool:
        first, second = await pool.pid("ses_1", at=1), await pool.pid("ses_2", at=2)
        await pool.pid("ses_1", at=3)
        await pool.pid("ses_3", at=4)
        assert pool.terminals.pids().keys() == {"ses_1", "ses_3"} and alive(first) and not alive(second)


async def test_if_all_are_in_use_the_error_says_so(tmp_path: Path) -> None:
    async with a_pool(tmp_path, max_terminals=1) as pool:
        async with pool.terminals.use(pool.life, "ses_1"):
            with pytest.raises(RookeryError) as caught:
                await pool.pid("ses_2")
            assert caught.value.code == "limit-reached" and "sessions.terminals" in caught.value.remedy
        assert alive(await pool.pid("ses_2"))
    async with a_pool(tmp_path, max_terminals=0) as none:
        with pytest.raises(RookeryError) as caught:
            await none.pid("ses_1")
        assert caught.value.code == "agent-unavailable"


def test_it_may_stand_idle_for_so_long_and_not_while_it_is_used() -> None:
    seat = PooledTerminal(cast(Terminal, None), lambda: None, 100.0)
    assert seat.remaining_seconds(130.0, 300.0) == 270.0 and seat.remaining_seconds(500.0, 300.0) == -100.0
    seat.users = 1
    assert seat.remaining_seconds(500.0, 300.0) == 300.0


@requirement("term.close.killed")
async def test_d05_one_that_nobody_looks_at_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    async with a_pool(tmp_path, "setsid double", idle_seconds=60.0) as pool:
        pid = await pool.pid("ses_1", at=0)
        mine = pool.left()
        assert len(mine) == 3
        # The time that it may stand idle is up.
        pool.clock.now = 61.0
        seat = pool.terminals._terminals["ses_1"]
        async with asyncio.timeout(SECONDS):
            await pool.terminals._watch("ses_1", seat)
        assert pool.terminals.pids() == {} and not alive(pid) and not any(map(alive, mine))


@pytest.mark.parametrize("why", ["agent", "deleted", "archived"])
@requirement("term.close.killed")
async def test_it_ends_with_its_agent_and_with_its_session(tmp_path: Path, why: str) -> None:
    async with a_pool(tmp_path) as pool:
        pid, other = await pool.pid("ses_1"), await pool.pid("ses_2")
        session = {"id": "ses_1", "directory": "/", "title": "", "time": {"created": 1, "updated": 1, "archived": 2}}
        event = {
            "agent": ProcessEnded(),
            "deleted": SessionDeleted("ses_1"),
            "archived": SessionUpdated(msgspec.convert(session, Session)),
        }[why]
        for listener in list(pool.life.listeners):
            listener(event)
        await asyncio.to_thread(wait_dead, pid)
        if why == "agent":
            await asyncio.to_thread(wait_dead, other)
        else:
            assert alive(other)


async def test_one_that_ends_by_itself_is_started_again_by_the_next_who_wants_it(tmp_path: Path) -> None:
    async with a_pool(tmp_path) as pool:
        first = await pool.pid("ses_1")
        async with pool.terminals.use(pool.life, "ses_1") as seat:
            os.kill(first, 9)
            assert await seat.terminal.wait_until(lambda: None, SECONDS) is None and not seat.terminal.is_alive
        assert await pool.pid("ses_1") != first


async def test_one_that_was_ended_tells_so_whatever_is_asked_of_it(tmp_path: Path) -> None:
    async with a_pool(tmp_path) as pool, pool.terminals.use(pool.life, "ses_1") as seat:
        terminal = seat.terminal
        waiting = asyncio.ensure_future(terminal.wait_until(lambda: None, SECONDS))
        await pool.terminals.end("ses_1")
        assert await waiting is None and not terminal.is_alive
        for ask in (lambda: terminal.text, lambda: terminal.title, terminal.capture, lambda: terminal.write(b"x")):
            with pytest.raises(RookeryError, match="has ended"):
                ask()
        for wait in (terminal.screen(), terminal.resize((80, 20), 1)):
            with pytest.raises(RookeryError, match="has ended"):
                await wait
        await terminal.close()


@requirement("term.close.killed")
async def test_d18_whoever_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    """At any await of a start, of a use and of an end."""
    chance = random.Random(18)
    async with a_pool(tmp_path, "setsid", max_terminals=2) as pool:

        async def work(session: str) -> None:
            async with pool.terminals.use(pool.life, session):
                await asyncio.sleep(0)
            await pool.terminals.end(session)

        for number in range(40):
            task = asyncio.ensure_future(work(f"ses_{number % 3}"))
            await asyncio.sleep(chance.choice([0, 0.002, 0.02, 0.1]))
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled() or task.exception() is None
        assert pool.spawner._count > 5 and len(pool.terminals.pids()) <= 2
