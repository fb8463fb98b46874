"""Errors of servers that cannot be used until the user approves them or signs in."""

from typing import Literal

from rookery.system.errors import RookeryError

RequiredAction = Literal["needs_approval", "needs_auth", "needs_client_registration"]


class UserActionRequired(RookeryError):
    """A server cannot be used until its user has taken the action that `status` names."""

    def __init__(
        self, status: RequiredAction, code: str, message: str, remedy: str, *, blocks_server: bool = True
    ) -> None:
        """Create the error. `blocks_server` is False if only the requested operation is refused."""
        super().__init__(code, message, remedy)
        self.status: RequiredAction = status
        self.blocks_server = blocks_server


def approval_required(name: str) -> UserActionRequired:
    return UserActionRequired(
        "needs_approval",
        "needs-approval",
        f'MCP server "{name}" is defined inside a repository and needs approval',
        f"review and approve it: rookery guard approve {name}",
    )


def token_required(message: str) -> UserActionRequired:
    """Return the error for a server without sign-in: it has its own Authorization header, or sign-in is disabled."""
    remedy = "add an Authorization header with a valid token to its definition"
    return UserActionRequired("needs_auth", "needs-auth", message, remedy)


def sign_in_required(
    name: str, message: str, *, more_rights: bool = False, blocks_server: bool = True
) -> UserActionRequired:
    """Return the error for a server that requires a sign-in, or with `more_rights` a sign-in that grants more."""
    what = "sign in again and grant the requested access" if more_rights else "sign in"
    remedy = f"{what}: rookery mcp login {name}"
    return UserActionRequired(
        "needs_auth", "needs-auth", f"{message} ({remedy})", remedy, blocks_server=blocks_server and not more_rights
    )


def client_required(message: str, remedy: str, *, blocks_server: bool = True) -> UserActionRequired:
    """Return the error for a server whose issuer registers no clients. `remedy` says what the user can do."""
    return UserActionRequired(
        "needs_client_registration",
        "needs-client-registration",
        f"{message} ({remedy})",
        remedy,
        blocks_server=blocks_server,
    )
