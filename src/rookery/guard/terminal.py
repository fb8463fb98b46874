"""Decides who may approve: a person at a terminal, and no process that Rookery started.

This stops an agent that was persuaded to approve its own tools, and every honest program. It does not stop a program of
the same user that imitates a person: it can remove the marker, leave its parents and open a terminal.
"""

import asyncio

from rookery.system.errors import RookeryError
from rookery.system.process.table import ProcessesChanged, ProcessInfo, find_marked_on_terminal, list_ancestry
from rookery.wire.http.auth import PeerProcess, Principal

_REMEDY = "run `rookery guard` yourself, in a terminal that Rookery did not open"


def require_socket(principal: Principal) -> None:
    """Raise unless the request comes over the Unix socket."""
    if not principal.local:
        raise _make_refusal("approvals can be listed, given and revoked only over the Unix socket")


async def require_person(principal: Principal, peer: PeerProcess | None, *, at_terminal: bool) -> None:
    """Raise unless the request comes from a person.

    A person's request comes from no process that Rookery started and, with `at_terminal`, from a terminal.
    """
    require_socket(principal)
    if why := await asyncio.to_thread(_check_caller, peer, at_terminal):
        raise _make_refusal(why)


def _check_caller(peer: PeerProcess | None, at_terminal: bool) -> str | None:
    """Return why the calling process may not approve; None if it may."""
    try:
        ancestry = list_ancestry(peer.pid) if peer is not None else []
    except ProcessesChanged:
        return "the calling process was being replaced; try again"
    if peer is None or not ancestry or ancestry[0].started != peer.started:
        return "the calling process has ended"
    return find_objection(ancestry, at_terminal) or _find_marked_company(ancestry[0])


def find_objection(ancestry: list[ProcessInfo], at_terminal: bool) -> str | None:
    """Return why a process may not approve; None if it may. `ancestry` is the process, its parent, and so on.

    Some ancestors cannot be read, such as the ssh server; the remaining ones are checked.
    """
    caller = ancestry[0]
    if caller.marked is None:
        return "the environment of the calling process cannot be read"
    if marked := [process.pid for process in ancestry if process.marked]:
        return f"the calling process was started by Rookery (it, or its ancestor with pid {marked[0]})"
    if at_terminal and not caller.terminal:
        return "the calling process has no terminal"
    if at_terminal and caller.foreground is False:
        return "the calling process is not in the foreground of its terminal"
    return None


def _find_marked_company(caller: ProcessInfo) -> str | None:
    """Return why a process is refused for its terminal: one that left its parents still shares session and terminal."""
    marked = find_marked_on_terminal(caller.terminal, caller.session)
    return f"a process that Rookery started uses the same terminal (pid {marked[0]})" if marked else None


def _make_refusal(why: str) -> RookeryError:
    return RookeryError("approval-refused", why, _REMEDY)
