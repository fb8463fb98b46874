"""Who may approve: a person at a terminal, and no process that Rookery started.

This stops an agent that was talked into approving its own tools, and every honest program. It does not stop a program
of the same user that sets out to look like a person: it can drop the marker, leave its parents and open a terminal.
"""

import asyncio

from rookery.system.errors import RookeryError
from rookery.system.lineage import Seen, Unsteady, lineage, marked_on
from rookery.wire.gate import Peer, Principal

_REMEDY = "run `rookery guard` yourself, in a terminal that Rookery did not open"


def require_socket(principal: Principal) -> None:
    if not principal.local:
        raise _refused("approvals are shown, given and taken back only over the Unix socket")


async def require_person(principal: Principal, peer: Peer | None, *, at_terminal: bool) -> None:
    """Raise unless the request comes from a person, which means: from no process of ours, and from a terminal."""
    require_socket(principal)
    if why := await asyncio.to_thread(_look, peer, at_terminal):
        raise _refused(why)


def _look(peer: Peer | None, at_terminal: bool) -> str | None:
    try:
        line = lineage(peer.pid) if peer is not None else []
    except Unsteady:
        return "the process that asks was being replaced; try again"
    if peer is None or not line or line[0].started != peer.started:
        return "the process that asks has gone"
    return judge(line, at_terminal) or _company(line[0])


def judge(line: list[Seen], at_terminal: bool) -> str | None:
    """What speaks against the first of these processes, of which each was started by the next.

    Of those above it some cannot be read, such as the ssh server's: what they hide, the others still show.
    """
    asking = line[0]
    if asking.marked is None:
        return "the environment of the process that asks cannot be read"
    if marked := [one.pid for one in line if one.marked]:
        return f"the process that asks was started by Rookery (it, or the one above it with pid {marked[0]})"
    if at_terminal and not asking.terminal:
        return "the process that asks has no terminal"
    if at_terminal and asking.foreground is False:
        return "the process that asks is not in the foreground of its terminal"
    return None


def _company(asking: Seen) -> str | None:
    """Whoever let go of its parents still shares session and terminal with those that were left behind."""
    found = marked_on(asking.terminal, asking.session)
    return f"its terminal is also that of a process that Rookery started (pid {found[0]})" if found else None


def _refused(why: str) -> RookeryError:
    return RookeryError("approval-refused", why, _REMEDY)
