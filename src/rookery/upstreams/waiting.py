"""What a server waits for that only its user can do."""

from typing import Literal

from rookery.system.errors import RookeryError

Waiting = Literal["needs_approval", "needs_auth", "needs_client_registration"]


class NotYet(RookeryError):
    """It cannot be used until its user has done something, which `status` tells."""

    def __init__(self, status: Waiting, code: str, message: str, remedy: str, *, whole: bool = True) -> None:
        """`whole` is whether nothing of it can be used, and not only what was asked for."""
        super().__init__(code, message, remedy)
        self.status: Waiting = status
        self.whole = whole


def needs_approval(name: str) -> NotYet:
    return NotYet(
        "needs_approval",
        "needs-approval",
        f'MCP server "{name}" is defined inside a repository and waits for approval',
        f"look at it and approve it: rookery guard approve {name}",
    )


def needs_token(message: str) -> NotYet:
    """For a server that is not signed in to: it has an Authorization of its own, or is told not to."""
    remedy = "give it an Authorization header in its definition, with a token that it accepts"
    return NotYet("needs_auth", "needs-auth", message, remedy)


def needs_sign_in(name: str, message: str, *, more: bool = False, whole: bool = True) -> NotYet:
    """With `more` it is signed in to, and wants to be allowed more than it is."""
    what = "sign in again, and allow what it asks for" if more else "sign in"
    remedy = f"{what}: rookery mcp login {name}"
    return NotYet("needs_auth", "needs-auth", f"{message} ({remedy})", remedy, whole=whole and not more)


def needs_client(message: str, how: str, *, whole: bool = True) -> NotYet:
    return NotYet("needs_client_registration", "needs-client-registration", f"{message} ({how})", how, whole=whole)
