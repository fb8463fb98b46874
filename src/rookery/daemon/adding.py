"""Who adds a project: what it brings along is approved by that only if the user does it."""

import logging

from rookery.api.plugins import require_outsider
from rookery.system.errors import RookeryError

logger = logging.getLogger("rookery.daemon")


async def added_by_user() -> bool:
    """Whether the process that asks is none of those that Rookery has started.

    An agent could otherwise forget a project, write what it likes into it, and add it again.
    """
    try:
        await require_outsider()
    except RookeryError as error:
        logger.info("nothing is approved by adding this project: %s", error.message)
        return False
    return True
