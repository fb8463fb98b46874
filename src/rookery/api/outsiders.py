"""What only the user may do, and nothing that Rookery has started, such as an agent."""

from rookery.guard.terminal import require_person
from rookery.system.errors import RookeryError
from rookery.wire.gate import OWNER_LOCAL
from rookery.wire.peers import calling_process, over_socket


async def require_outsider(why: str, remedy: str) -> None:
    """Refuses whatever Rookery started, with `why`. Whoever comes over a port has shown the owner's token."""
    if not over_socket():
        return
    try:
        await require_person(OWNER_LOCAL, calling_process(), at_terminal=False)
    except RookeryError as error:
        message = f"{why}: {error.message}"
        raise RookeryError("forbidden", message, f"{remedy}, in a terminal that Rookery did not open") from None
