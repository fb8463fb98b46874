"""Identifies the caller of each connection once, from the process at its other end.

A process that Rookery started for a workspace has the rights of that workspace's token and no more. A process that
Rookery started for no workspace has no rights. Every other process of this user is the owner.
"""

import asyncio
import logging

import psutil

from rookery.daemon.lookup import WorkspaceLookup
from rookery.daemon.services.workspaces import has_sandbox
from rookery.daemon.settings.schema import Settings
from rookery.system.network import find_connection_holders
from rookery.system.process import table
from rookery.system.process.spawn import Origin, Spawner, WorkspaceIdentity
from rookery.system.process.table import list_markers_around
from rookery.wire.http.auth import (
    ANYBODY,
    LOOPBACK,
    OWNER_LOCAL,
    Authenticate,
    PeerProcess,
    Principal,
    Refusal,
    Tokens,
    make_owner_authenticator,
    make_socket_authenticator,
    make_tcp_authenticator,
)
from rookery.workspaces.lifecycle.tokens import WorkspaceTokens
from rookery.workspaces.model import format_path
from rookery.workspaces.worktrees import read_creation_time

logger = logging.getLogger("rookery.daemon")

_OWNER = make_socket_authenticator(OWNER_LOCAL)
_OUTSIDE = "in a terminal that Rookery did not open"
_UNKNOWN_PROCESS = Refusal(
    403,
    "forbidden",
    "the connecting process cannot be identified: it has ended, or its environment cannot be read",
    remedy=f"try again, {_OUTSIDE}",
)
_NO_WORKSPACE = Refusal(
    403,
    "forbidden",
    "this process was started by Rookery and works for no workspace, so it has no rights here",
    remedy=f"run the command yourself, {_OUTSIDE}",
)


class Callers:
    """Decides the rights of callers, from the children of this daemon and the tokens of their workspaces."""

    def __init__(
        self,
        settings: Settings,
        spawner: Spawner,
        tokens: Tokens,
        workspace_tokens: WorkspaceTokens,
        lookup: WorkspaceLookup,
    ) -> None:
        self._spawner = spawner
        self._tokens = tokens
        self._workspace_tokens = workspace_tokens
        self._lookup = lookup
        # Whether TCP clients without a token are admitted.
        self.allows_tokenless = settings.auth == "loopback"
        # Programs that an earlier daemon has confined may still reach the socket, if they may use any.
        self._has_sandbox_settings = has_sandbox(settings)

    async def authenticator_for_socket(self, peer: PeerProcess | None) -> Authenticate:
        """Return the authenticator for a connection of the Unix socket."""
        markers = await asyncio.to_thread(list_markers_around, peer.pid, peer.started) if peer is not None else None
        if markers is None:
            return make_socket_authenticator(ANYBODY, _UNKNOWN_PROCESS)
        origin = self._spawner.find_origin(markers)
        if origin in ("outside", "user"):
            return make_owner_authenticator(self._tokens) if self._has_sandbox() else _OWNER
        principal = await self._principal(origin)
        if principal is None or not isinstance(origin, WorkspaceIdentity):
            return make_socket_authenticator(ANYBODY, _NO_WORKSPACE)
        return make_socket_authenticator(principal, _make_workspace_refusal(origin))

    def _has_sandbox(self) -> bool:
        """Return whether anything is or will be confined. What is confined may have shed its marker."""
        return self._has_sandbox_settings or self._spawner.has_confined

    def authenticator_for_port(self, port: int) -> Authenticate:
        """Return the authenticator for a port where every client has to send a token."""
        return make_tcp_authenticator(port, self._tokens)

    async def authenticator_for_address(self, port: int, address: tuple[str, int]) -> Authenticate:
        """Return the authenticator for a connection to a port where clients need no token.

        A process that Rookery started has its own rights there too, with its token or without it. A process that cannot
        be identified needs a token: it may have sent its request and ended. Where anything is confined, every other
        process needs one too: it may be a confined one that has shed its marker.
        """
        markers = await asyncio.to_thread(_markers_at, port, address)
        if markers is None:
            return self.authenticator_for_port(port)
        origin = self._spawner.find_origin(markers)
        if origin in ("outside", "user"):
            tokenless = None if self._has_sandbox() else LOOPBACK
            return make_tcp_authenticator(port, self._tokens, tokenless=tokenless)
        return make_tcp_authenticator(port, self._tokens, tokenless=await self._principal(origin))

    async def _principal(self, origin: Origin) -> Principal | None:
        """Return the principal of the workspace that a child works for, if that workspace still exists."""
        if not isinstance(origin, WorkspaceIdentity) or read_creation_time(origin.git_folder) != origin.created:
            return None
        if not self._workspace_tokens.has_token(origin.git_folder):
            # The token of a workspace is made when it is first needed.
            if await self._lookup.find_by_git_folder(origin.git_folder) is None:
                return None
            await self._workspace_tokens.get(origin.git_folder)
        return Principal("workspace", workspace=origin.git_folder)


def _markers_at(port: int, address: tuple[str, int]) -> list[str] | None:
    """Return the markers around all processes that hold the other end of a connection; None if any is unknown."""
    holders = find_connection_holders(address, port)
    if holders is None:
        return None
    markers: list[str] = []
    for pid in holders:
        try:
            process_markers = list_markers_around(pid, table.start_time(pid))
        except psutil.Error:
            process_markers = None
        if process_markers is None:
            return None
        markers += process_markers
    return markers


def _make_workspace_refusal(home: WorkspaceIdentity) -> Refusal:
    return Refusal(
        403,
        "forbidden",
        f"this process was started by Rookery for the workspace at {format_path(home.folder)}, so it has the rights of "
        "that workspace's token: its MCP endpoints and nothing else",
        remedy=f"use the tools of its MCP server; or run the command yourself, {_OUTSIDE}",
    )
