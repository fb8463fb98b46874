"""The operations on sign-ins to MCP servers: begin, wait for, redirect and cancel one, and sign out.

Signing in is for the owner, and not for processes that Rookery started: these have the rights of their workspace only.
"""

import asyncio
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rookery.operations.operation import ADMIN_TOOLSET, Caller, McpTool, Progress, RestRoute, operation
from rookery.operations.servers.control import SERVER_PATH, ListedServer, OneServer, ServerSelection, ServerSelector
from rookery.system.errors import RookeryError
from rookery.upstreams.config.definition import Definition
from rookery.upstreams.oauth.manager import LOGIN_SECONDS, LoginAttempt

_MAX_SECONDS = 3600.0
_LOGIN_PATH = f"{SERVER_PATH}/login"
# The interval of progress reports, in seconds.
_REPORT_SECONDS = 10.0


class BeginLogin(OneServer, kw_only=True):
    seconds: Annotated[float, Meta(description="How long the person has, in seconds; at most 3600")] = LOGIN_SECONDS


class SendRedirect(OneServer, kw_only=True):
    url: Annotated[str, Meta(description="The address that the browser was redirected to")]


class LoginPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in that has begun: a person has to open `url` within `seconds`; the browser returns to `redirect`."""

    name: str
    type: Literal["asked"] = "asked"
    url: str
    redirect: str
    issuer: str
    seconds: float


class SignedInServer(ListedServer, kw_only=True):
    """A server, and the issuer whose token is used for it."""

    issuer: str | None


class RedirectAccepted(msgspec.Struct, frozen=True):
    taken: bool = True


class CancelledLogin(msgspec.Struct, frozen=True):
    name: str


class SignedOutServer(msgspec.Struct, frozen=True):
    """`removed` says whether there were tokens, `revoked` whether the issuer has revoked them."""

    name: str
    removed: bool
    revoked: bool


class SignInOperations:
    """The operations on sign-ins."""

    group = "signin"

    def __init__(self, selector: ServerSelector) -> None:
        self._selector = selector
        self._hub = selector.hub
        self._signins = selector.hub.signins

    @operation(
        rest=RestRoute("POST", _LOGIN_PATH, (202,)),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_login",
            "Start to sign in to an MCP server. Returns the `url` that the user has to open in a browser on the "
            "machine of Rookery; server_wait_login waits until that is done.",
            forbid_unknown=True,
        ),
    )
    async def begin(self, caller: Caller, arguments: BeginLogin) -> LoginPrompt:
        """Start to sign in to a server; returns the address for a person to open, and the redirect address."""
        if not 0 < arguments.seconds <= _MAX_SECONDS:
            message = f"seconds must be greater than 0 and at most {_MAX_SECONDS:g}"
            raise RookeryError("invalid-input", message, "send a number in that range as seconds")
        name = arguments.name
        session = arguments.session
        definition = await self._find_definition(caller, arguments)
        directory = await self._selector.find_directory(caller, arguments)
        # Whether the server requires a sign-in is known only after a connection.
        await self._hub.connect(directory, session, name)
        status = (await self._selector.get_record(ServerSelection(directory, arguments.session), arguments.name)).status
        if (
            status == "connected"
            and not self._signins.is_sign_in_required(definition)
            and self._signins.find_issuer(definition) is None
        ):
            message = f'MCP server "{name}" is connected and requires no sign-in'
            raise RookeryError("invalid-input", message, "no sign-in is needed")
        if status in ("failed", "backoff"):
            raise (await self._hub.server_set(directory, session)).server(name, session).failure()
        prompt = await (await self._signins.login(definition, arguments.seconds)).wait_for_prompt()
        return LoginPrompt(
            name=name, url=prompt.url, redirect=prompt.redirect, issuer=prompt.issuer, seconds=arguments.seconds
        )

    @operation(
        time_limit=_MAX_SECONDS,
        rest=RestRoute("GET", _LOGIN_PATH),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_wait_login",
            "Wait for the end of a sign-in to an MCP server. Returns the server, and the issuer whose token is used.",
            forbid_unknown=True,
        ),
    )
    async def wait(self, caller: Caller, arguments: OneServer) -> SignedInServer:
        """Wait for the end of a sign-in; returns the server's record, and the issuer whose token is used."""
        definition = await self._find_definition(caller, arguments)
        await _wait_for_login(self._signins.attempt(definition), caller.progress)
        directory = await self._selector.find_directory(caller, arguments)
        await self._hub.connect(directory, arguments.session, arguments.name)
        record = await self._selector.get_record(ServerSelection(directory, arguments.session), arguments.name)
        return SignedInServer(**msgspec.structs.asdict(record), issuer=self._signins.find_issuer(definition))

    @operation(
        rest=RestRoute("POST", f"{_LOGIN_PATH}/redirect", (202,)),
        absent={
            "mcp": "the address has a code in it that is exchanged for a token, and arguments of tools reach the "
            "provider of the model"
        },
    )
    async def redirect(self, caller: Caller, arguments: SendRedirect) -> RedirectAccepted:
        """Accept the address that the browser was redirected to, if the browser is on another machine."""
        await self._signins.attempt(await self._find_definition(caller, arguments)).send_redirect(arguments.url)
        return RedirectAccepted()

    @operation(
        rest=RestRoute("DELETE", _LOGIN_PATH),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_cancel_login",
            "Cancel a sign-in to an MCP server, if one is running.",
            destructive=True,
            forbid_unknown=True,
        ),
    )
    async def cancel(self, caller: Caller, arguments: OneServer) -> CancelledLogin:
        """Cancel a sign-in."""
        definition = await self._find_definition(caller, arguments)
        await self._signins.cancel_login(definition)
        return CancelledLogin(definition.name)

    @operation(
        rest=RestRoute("POST", f"{SERVER_PATH}/logout"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_logout",
            "Sign out of an MCP server: delete its tokens, and revoke them if the issuer supports that.",
            destructive=True,
            forbid_unknown=True,
        ),
    )
    async def logout(self, caller: Caller, arguments: OneServer) -> SignedOutServer:
        """Sign out: delete the tokens, and revoke them if the issuer supports that."""
        definition = await self._find_definition(caller, arguments)
        removed, revoked = await self._signins.logout(definition)
        return SignedOutServer(definition.name, removed, revoked)

    async def _find_definition(self, caller: Caller, arguments: OneServer) -> Definition:
        """Return the definition of a server; raise if it is disabled, or waits for approval."""
        directory = await self._selector.find_directory(caller, arguments)
        server_set = await self._hub.server_set(directory, arguments.session)
        return server_set.server(arguments.name, arguments.session).definition


async def _wait_for_login(attempt: LoginAttempt, progress: Progress | None) -> None:
    """Wait for the end of a login, and report progress meanwhile, so that a client does not give up."""
    while progress is not None and attempt.running:
        try:
            async with asyncio.timeout(_REPORT_SECONDS):
                await attempt.wait()
        except TimeoutError:
            await progress("waiting until the user has signed in")
    await attempt.wait()
