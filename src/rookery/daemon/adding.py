"""Who adds a project: what it brings along is approved by that only if the user does it."""

import os

from rookery.guard.terminal import require_person
from rookery.system.errors import RookeryError
from rookery.system.processes import MARKER
from rookery.wire.gate import OWNER_LOCAL
from rookery.wire.peers import calling_process, over_socket


async def added_by_user() -> bool:
    """Whether neither the process that asks, nor the one that has started the daemon, was started by Rookery.

    An agent could otherwise forget a project, write what it likes into it, and add it again.
    """
    if not over_socket():
        return MARKER not in os.environ
    try:
        await require_person(OWNER_LOCAL, calling_process(), at_terminal=False)
    except RookeryError:
        return False
    return True
