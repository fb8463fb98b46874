"""Who adds a project: plugins that it brings along are approved by that only if the user does it."""

import logging

from rookery.guard.terminal import require_person
from rookery.system.errors import RookeryError
from rookery.wire.gate import OWNER_LOCAL
from rookery.wire.peers import calling_process, over_socket

logger = logging.getLogger("rookery.daemon")


async def added_by_user() -> bool:
    """Whether the process that asks is none of those that Rookery has started.

    An agent could otherwise forget a project, write what it likes into it, and add it again.
    """
    if not over_socket():
        return True
    try:
        await require_person(OWNER_LOCAL, calling_process(), at_terminal=False)
    except RookeryError as error:
        logger.info("no plugin is approved by adding this project: %s", error.message)
        return False
    return True
