"""Connections to MCP servers: from a definition to a channel, and from a channel to an initialized client.

The outgoing HTTP client is imported only when the first remote server is connected.
"""

import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import rookery
from rookery.gateway.relay import answer_roots
from rookery.system.errors import RookeryError
from rookery.system.process import environment
from rookery.system.process.child import TailBuffer
from rookery.system.process.environment import EnvironmentFilter
from rookery.system.process.spawn import Spawner
from rookery.upstreams.config.definition import Definition
from rookery.upstreams.errors import UserActionRequired, approval_required
from rookery.upstreams.oauth.manager import SignInManager
from rookery.upstreams.sandbox import ServerSandboxes, explain_refusal
from rookery.wire.client.client import Client
from rookery.wire.client.connect import (
    ConnectionState,
    Era,
    EraChoice,
    EraRefused,
    ReconnectingClient,
    connect_client,
)
from rookery.wire.client.encode import ClientIdentity
from rookery.wire.client.inflight import HandleNotification
from rookery.wire.client.stdio import ServerProgram, StdioTransport
from rookery.wire.client.transport import ClientTransport
from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import METHOD_NOT_FOUND, WireError
from rookery.wire.protocol.provider import Call

if TYPE_CHECKING:
    from rookery.wire.http_client.client import HttpClient

# Returns whether a definition found in a checkout may be used; app-wide definitions of the user always may.
ApprovalCheck = Callable[[Definition, Path | None], Awaitable[bool]]

logger = logging.getLogger("rookery.mcp.servers")

# All capabilities are declared, so that servers can ask. Rookery answers for clients that cannot be asked.
CLIENT_IDENTITY = ClientIdentity(
    {"name": "rookery", "version": rookery.__version__},
    {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}, "url": {}}},
)
# Opens a connection in this era, or fails.
OpenInEra = Callable[[Literal["modern", "handshake"]], Awaitable[Client]]

_ASKED = frozenset(revisions.REQUIRED_CAPABILITIES.values())
# How often a server that fails in the other era, and never was connected in it, is tried beside a connection.
_MAX_ATTEMPTS = 2
_LOG_SECONDS = 5.0
_REPOSITORY_REMEDY = (
    "servers of a repository get only what their definition names: "
    'add "environment": {"NAME": "{env:NAME}"}, and approve it'
)


@dataclass(frozen=True)
class Connector:
    """Creates channels. `http` returns the client that all remote servers share, created on first use."""

    spawner: Spawner
    http: "Callable[[], HttpClient]"
    is_approved: ApprovalCheck
    signins: SignInManager
    # What the user's own local servers get of the daemon's environment.
    environment: EnvironmentFilter
    # Returns the OpenCode that Rookery has installed, if any: the program of servers that are packages it runs.
    find_opencode: Callable[[], Path | None]
    # Makes the sandboxes of local servers; None if there are none.
    sandboxes: ServerSandboxes | None = field(default=None, kw_only=True)
    # Seconds to wait for the answer to a question of a server.
    question_seconds: float = field(default=630.0, kw_only=True)

    def channels(
        self, definition: Definition, directory: Path, errors: TailBuffer
    ) -> tuple[ClientTransport, ClientTransport | None]:
        """Return the channel to try first, and the older one to fall back to, if any."""
        if definition.kind == "local":
            return StdioTransport(self.spawner, self.build_program(definition, directory), errors), None
        from rookery.wire.client.http import HttpTransport, SseTransport

        signed_in = self.signins.credentials(definition)
        newer = HttpTransport(self.http(), definition.url, definition.headers, signed_in)
        older = SseTransport(self.http(), definition.url, definition.headers, signed_in)
        # A definition that names the transport gets no fallback.
        return {"auto": (newer, older), "http": (newer, None), "sse": (older, None)}[definition.transport]

    def build_program(self, definition: Definition, directory: Path) -> ServerProgram:
        """Return the program of a local server, with its folder and environment.

        What a repository defines gets fewer variables than the user's own servers: whatever it gets beyond the short
        list is in its definition, and so in its approval.
        """
        own = self.environment
        variables = dict(definition.environment)
        if Path(definition.command[0]).name == "opencode":
            variables.setdefault("BUN_BE_BUN", "1")
        if definition.inherit:
            env = environment.inherited_environment(variables)
        elif definition.source.place == "user":
            env = own.select(variables)
        else:
            env = environment.allowed_environment(variables)

        sandboxes = self.sandboxes
        confined = sandboxes.make(definition, directory, env) if sandboxes is not None else None
        if confined is not None:
            env = dict(confined.environment)

        def explain_failure(output: str) -> str:
            if confined is not None and (refusal := explain_refusal(output, confined.sandbox)):
                return refusal
            if definition.inherit:
                return ""
            if definition.source.place == "user":
                return own.explain_failure(output, env)
            return environment.explain_reduced_environment(output, env, _REPOSITORY_REMEDY)

        return ServerProgram(
            definition.name,
            self._find_command(definition, env),
            directory / (definition.cwd or ""),
            env,
            definition.framing,
            None if definition.is_shared else directory,
            explain_failure,
            confined.policy if confined is not None else None,
        )

    def _find_command(self, definition: Definition, env: Mapping[str, str]) -> Sequence[str]:
        """Return the command of a server; `opencode` is the installed one if there is none on the PATH."""
        program, *arguments = definition.command
        if program != "opencode" or shutil.which(program, path=env.get("PATH", os.defpath)) is not None:
            return definition.command
        installed = self.find_opencode()
        return definition.command if installed is None else [str(installed), *arguments]


@dataclass(frozen=True)
class ConnectionOpener:
    """Opens the connections of one server. `checkout` is where it was defined, `directory` where it runs."""

    connector: Connector
    definition: Definition
    directory: Path
    checkout: Path | None
    errors: TailBuffer

    @cached_property
    def root(self) -> Path | None:
        """The workspace that the server is told as its root, None if it serves all of them, or is not to be told."""
        definition = self.definition
        return (
            self.directory
            if self.checkout is not None and definition.is_told_root and not definition.is_app_wide
            else None
        )

    async def open(
        self,
        known_era: Era | None,
        on_notification: HandleNotification,
        only: Literal["modern", "handshake"] | None = None,
    ) -> tuple[Client, Era]:
        """Connect, and return the client and its era. Raise `UserActionRequired` if the user must act first.

        With `only`, connect in this era or not at all.
        """
        # Checked right before the start: a script may have changed since it was approved.
        if not await self.connector.is_approved(self.definition, self.checkout):
            raise approval_required(self.definition.name)

        def make_client(channel: ClientTransport) -> Client:
            timeouts = replace(self.definition.timeouts, question=self.connector.question_seconds)
            return Client(
                channel, CLIENT_IDENTITY, timeouts, answer_question=self._answer, on_notification=on_notification
            )

        newer, older = self.connector.channels(self.definition, self.directory, self.errors)
        # Each connection to a local server is a process, and in the handshake one can ask clients of both eras.
        preferred: EraChoice = "prefer-handshake" if self.definition.kind == "local" else "prefer-modern"
        older = older if only is None else None
        try:
            return await connect_client(
                make_client, newer, fallback=older, known_era=known_era, choice=only or preferred
            )
        except RookeryError as error:
            challenges = [
                channel.challenge for channel in (newer, older) if channel is not None and channel.challenge is not None
            ]
            if challenges:
                raise self.connector.signins.sign_in_error(self.definition, error, challenges[0]) from None
            raise

    def sign_in_error(self, error: RookeryError) -> UserActionRequired:
        """Return the error for a connected server that requires a sign-in for a request."""
        return self.connector.signins.sign_in_error(self.definition, error, connected=True)

    async def enable_logs(self, client: Client) -> None:
        """Request log messages of every level, since each caller has its own level. Runs in the background."""
        if client.modern or "logging" not in client.capabilities:
            return
        try:
            await client.request("logging/setLevel", {"level": "debug"}, seconds=_LOG_SECONDS, timeout_name="start-up")
        except (WireError, RookeryError) as error:
            logger.debug("%s: the log level cannot be set: %s", self.definition.name, error.code)

    async def _answer(self, method: str, params: Any) -> Mapping[str, Any]:
        """Answer a question of the server that belongs to no call."""
        if method == "roots/list":
            return answer_roots(self.root)
        raise WireError(METHOD_NOT_FOUND, f"no call is running that could answer {method}")


class OtherEra:
    """Opens the second connection of a server that speaks both eras, when a call needs it.

    A server can ask as its connection allows: during a call in the handshake era, with the result in the stateless one.
    So a call whose client can be asked goes over a connection of the client's own era, as it would without Rookery. All
    other calls use the main connection. `has_root` says that the server is told a root.
    """

    def __init__(self, name: str, open_connection: OpenInEra, clean: Callable[[str], str], *, has_root: bool) -> None:
        self._name = name
        self._open = open_connection
        self._clean = clean
        self._has_root = has_root
        self._era: Literal["modern", "handshake"] = "handshake"
        self._connection = ReconnectingClient(self._connect, self._on_state)
        self._main: Client | None = None
        # The main connection for which the other era was given up.
        self._refused_beside: Client | None = None
        self._was_connected = False
        self.stop = self._connection.stop
        self.close = self._connection.close
        self.fail = self._connection.fail

    @property
    def connected(self) -> Client | None:
        return self._connection.connected

    def is_needed(self, call: Call, main: Client, era: Era | None) -> bool:
        """Return whether a call needs the era that the main connection does not have, and the server may speak it.

        `era` is what is known of the server. A server of one era is asked once whether it speaks the handshake too.
        """
        is_modern = call.client.modern
        if is_modern is main.modern or main is self._refused_beside or (is_modern and era != "both") or era == "sse":
            return False
        return not _ASKED.isdisjoint(call.client.capabilities) or (self._has_root and not is_modern)

    async def get_client(self, main: Client) -> Client | None:
        """Return the client in the era that `main` does not have. Connect first if necessary; None if that fails."""
        self._main = main
        self._era = "handshake" if main.modern else "modern"
        connected = self._connection.connected
        if connected is not None and connected.modern is main.modern:
            await self._connection.stop()  # the main connection has changed its era
        try:
            return await self._connection.get_client()
        except RookeryError:
            if not self._was_connected and self._connection.failures >= _MAX_ATTEMPTS:
                self._refused_beside = main
            return None

    async def _connect(self, known: Era | None) -> tuple[Client, Era]:
        try:
            client = await self._open(self._era)
        except EraRefused:
            self._refused_beside = self._main
            raise
        self._was_connected = True
        return client, self._era

    def _on_state(self, state: ConnectionState, error: str | None) -> None:
        if error is not None:
            logger.info("%s: no second connection in the era %s: %s", self._name, self._era, self._clean(error))
