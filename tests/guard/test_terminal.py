"""Which processes count as a person. The processes are real; the requests are in the tests of the routes."""

import os
import sys
from collections.abc import Mapping
from typing import Any

import psutil
import pytest

from rookery.guard.terminal import find_objection, require_person
from rookery.system.errors import RookeryError
from rookery.system.process import table
from rookery.system.process.table import MARKER, ProcessInfo, list_ancestry, read_process
from rookery.wire.http.auth import OWNER, OWNER_LOCAL, PeerProcess
from tests.support.cli.user import TerminalUser, at_a_terminal
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("guard.approve.config")]

OURS = {MARKER: "instance.1"}
WAIT = ["sh", "-c", "echo ready $$; read line"]
# Needs no terminal to wait, and becomes no other program, whose environment could not be read for a moment.
PAUSE = f"{sys.executable} -c \"import os, signal; print('ready', os.getpid(), flush=True); signal.pause()\""


def seen(**more: Any) -> ProcessInfo:
    given: dict[str, Any] = {"pid": 9, "started": 1.0, "parent": 1, "session": 9, "terminal": 34816}
    given |= {"foreground": True, "marker": ""}
    return ProcessInfo(**given | more)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([seen()], None),
        ([seen(), seen(pid=8, marker=None), seen(pid=1)], None),
        ([seen(marker=None)], "cannot be read"),
        ([seen(marker="a.1")], "started by Rookery"),
        ([seen(), seen(), seen(pid=7, marker="a.1")], "with pid 7"),
        ([seen(), seen(marker=None), seen(pid=7, marker="a.1")], "with pid 7"),
        ([seen(terminal=None)], "has no terminal"),
        ([seen(foreground=False)], "not in the foreground"),
        ([seen(foreground=None)], None),
    ],
)
def test_c23_what_speaks_against_a_process(line: list[ProcessInfo], said: str | None) -> None:
    found = find_objection(line, at_terminal=True)
    assert found is None if said is None else said in (found or "")


def test_without_a_terminal_a_process_may_do_what_takes_none() -> None:
    assert find_objection([seen(terminal=None, foreground=False)], at_terminal=False) is None
    assert find_objection([seen(terminal=None, marker="a.1")], at_terminal=False) is not None


async def refusal(pid: int, *, at_terminal: bool = True, started: float | None = None) -> str:
    peer = PeerProcess(pid, table.start_time(pid) if started is None else started)
    try:
        await require_person(OWNER_LOCAL, peer, at_terminal=at_terminal)
    except RookeryError as error:
        assert error.code == "approval-refused"
        return error.message
    return ""


def asking(person: TerminalUser) -> int:
    """The pid of the process that waits there."""
    return int(person.reads("\n").split()[1])


async def test_a_person_at_a_terminal_is_taken_for_one() -> None:
    with at_a_terminal(argv=WAIT) as person:
        assert await refusal(asking(person)) == ""


async def test_c23_nobody_is_believed_over_tcp_or_without_a_process() -> None:
    with at_a_terminal(argv=WAIT) as person:
        pid = asking(person)
        with pytest.raises(RookeryError, match="only over the Unix socket"):
            await require_person(OWNER, PeerProcess(pid, table.start_time(pid)), at_terminal=True)
    with pytest.raises(RookeryError, match="has ended"):
        await require_person(OWNER_LOCAL, None, at_terminal=True)


@pytest.mark.parametrize(("env", "above"), [(OURS, {}), ({}, OURS), (OURS, OURS)], ids=["itself", "above", "both"])
async def test_c23_a_process_with_our_marker_or_with_an_ancestor_that_has_it_is_refused(
    env: Mapping[str, str], above: Mapping[str, str]
) -> None:
    with at_a_terminal(argv=WAIT, env=env, above=above) as person:
        assert "was started by Rookery" in await refusal(asking(person))
        assert "was started by Rookery" in await refusal(person.shell, at_terminal=False) or not above


async def test_c23_a_process_that_left_its_marked_parents_is_known_by_its_terminal() -> None:
    away = ["sh", "-c", f"(env -u {MARKER} sh -c 'echo ready $$; read line < /dev/tty' & ); read line < /dev/tty"]
    with at_a_terminal(argv=away, env=OURS) as person:
        pid = asking(person)
        assert all(not one.marked for one in list_ancestry(pid))
        assert "a process that Rookery started uses the same terminal" in await refusal(pid)


async def test_c23_a_process_in_the_background_or_without_a_terminal_is_refused() -> None:
    behind = ["bash", "-mc", f"{PAUSE} & wait"]
    with at_a_terminal(argv=behind) as person:
        assert "not in the foreground" in await refusal(asking(person))
    with at_a_terminal(argv=["sh", "-c", f"setsid {PAUSE} & wait"]) as person:
        pid = asking(person)
        assert "has no terminal" in await refusal(pid)
        assert await refusal(pid, at_terminal=False) == ""
        psutil.Process(pid).kill()


async def test_c23_a_process_whose_environment_was_wiped_is_refused() -> None:
    with at_a_terminal(argv=["env", "-i", "/bin/sh", "-c", "echo ready $$; read line"]) as person:
        found = read_process(asking(person))
        assert found is not None
        # The shell itself sets some; what counts is what it was started with.
        assert found.marked is None
        assert "cannot be read" in await refusal(found.pid)


async def test_c23_another_process_with_the_same_pid_is_not_the_one_that_asked() -> None:
    with at_a_terminal(argv=WAIT) as person:
        assert "has ended" in await refusal(asking(person), started=1.0)
    assert "has ended" in await refusal(2**22 + 1, started=1.0)


def test_the_lineage_of_a_process_is_itself_and_all_above_it() -> None:
    found = list_ancestry(os.getpid())
    above = [parent.pid for parent in psutil.Process().parents()]
    assert [one.pid for one in found] == [os.getpid(), *above]
    assert list_ancestry(2**22 + 1) == []
