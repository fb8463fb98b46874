"""Connecting to a server in the era that it speaks, and reconnecting on the next use.

A server speaks the stateless era, a handshake revision, or the older HTTP+SSE. No background task reconnects.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.wire.client.client import Client
from rookery.wire.client.transport import (
    AuthenticationRequired,
    ClientTransport,
    TransportClosed,
    TransportUnsupported,
)
from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import UNSUPPORTED_VERSION, WireError
from rookery.wire.timing import compute_backoff

# What a server speaks: one era as far as is known, both, or the older HTTP+SSE.
Era = Literal["modern", "handshake", "both", "sse"]
# Which era to connect in: this one if the server is known to speak both, or only this one.
EraChoice = Literal["prefer-modern", "prefer-handshake", "modern", "handshake"]

_PROBE_SECONDS = 5.0
_TRANSPORT_NAMES = ("Streamable HTTP", "HTTP+SSE")

logger = logging.getLogger("rookery.mcp.client")

# A connection that is lost sooner than this after connecting counts as failed, and is retried after a pause.
_STABLE_SECONDS = 10.0


class EraRefused(RookeryError):
    """The server does not speak the only era in which it was to be connected."""


async def connect_client(
    make_client: Callable[[ClientTransport], Client],
    transport: ClientTransport,
    *,
    fallback: ClientTransport | None = None,
    known_era: Era | None = None,
    choice: EraChoice = "prefer-modern",
) -> tuple[Client, Era]:
    """Return a connected client and the detected era, which the caller passes as `known_era` the next time.

    `fallback` is tried if `transport` fails, unless the server requires credentials or shares no revision with us.
    Whether a modern server speaks both eras is not found out here.
    """
    # The known era is tried first; the server may have changed since.
    transports = (
        [transport] if fallback is None else [fallback, transport] if known_era == "sse" else [transport, fallback]
    )
    client = make_client(transports[0])
    seconds = client.timeouts.startup
    tried = ""
    try:
        async with asyncio.timeout(seconds):
            if len(transports) == 2:
                try:
                    return await _connect_over(client, known_era, fallback, choice)
                except (TransportUnsupported, TransportClosed, RookeryError, WireError) as error:
                    if not _may_fall_back(error):
                        raise
                    names = _TRANSPORT_NAMES if known_era != "sse" else _TRANSPORT_NAMES[::-1]
                    tried = f"over {names[0]}: {_describe_failure(error)}; over {names[1]}: "
                await client.close()
                client = make_client(transports[1])
                known_era = None
            return await _connect_over(client, known_era, fallback, choice)
    except TimeoutError:
        diagnosis = client.transport.diagnosis()
        await client.close()
        raise RookeryError(
            "timeout", f"not connected within the start-up timeout of {seconds:g} s", diagnosis
        ) from None
    except (TransportClosed, TransportUnsupported, WireError) as error:
        await client.close()
        if choice in ("modern", "handshake") and not isinstance(error, TransportClosed):
            raise EraRefused("upstream-failed", f"cannot connect: {_describe_failure(error)}") from None
        diagnosis = "" if isinstance(error, WireError) else client.transport.diagnosis()
        message = f"cannot connect: {tried}{_describe_failure(error)}"
        raise RookeryError("upstream-failed", message, diagnosis) from None
    except RookeryError as error:
        await client.close()
        if not tried:
            raise
        raise RookeryError(error.code, f"cannot connect: {tried}{error.message}", error.remedy) from None
    except BaseException:
        await client.close()
        raise


def _may_fall_back(error: Exception) -> bool:
    """Return whether the other transport could work although one has failed with `error`.

    Credentials are required over both, and a server that lists its revisions speaks none of the other transport.
    """
    if isinstance(error, RookeryError):
        return error.code != "needs-auth"
    return not isinstance(error, AuthenticationRequired) and not (
        isinstance(error, WireError) and _list_supported(error)
    )


def _describe_failure(error: Exception) -> str:
    return f"{error.message} ({error.code})" if isinstance(error, WireError) else str(error)


async def _connect_over(
    client: Client, known_era: Era | None, fallback: ClientTransport | None, choice: EraChoice
) -> tuple[Client, Era]:
    if client.transport is not fallback and (fallback is not None or known_era != "sse"):
        return client, await _connect_streamable(client, known_era, choice)
    await client.open()
    await _initialize(client)
    return client, "sse"


async def _connect_streamable(client: Client, known_era: Era | None, choice: EraChoice) -> Era:
    """Connect in the chosen era, and return what the server speaks, as far as that is known now."""
    await client.open()
    if choice == "handshake":
        await _initialize(client)
        return "handshake"
    if known_era == "handshake":
        return await _connect_handshake(client)
    if known_era == "both" and choice == "prefer-handshake":
        if await _try_handshake(client):
            return "both"
        known_era = None
    # Where only the stateless era will do, a server that starts slowly has all the time that it may take.
    probe = await _probe(client, client.timeouts.startup if choice == "modern" else None)
    if probe == "modern":
        return "both" if known_era == "both" else "modern"
    if choice == "modern":
        kind = TransportUnsupported if probe == "refused" else TransportClosed
        raise kind(f"it does not speak {revisions.LATEST}, or not now")
    if probe == "ended":
        await _reopen(client)
    return await _connect_handshake(client, was_probed=probe in ("refused", "silent"))


async def _connect_handshake(client: Client, *, was_probed: bool = False) -> Era:
    try:
        await _initialize(client)
    except WireError as error:
        # The server started so slowly that it received the first request after we had given it up.
        is_modern = any(revision in revisions.MODERN for revision in _list_supported(error))
        if is_modern and await _probe(client) == "modern":
            return "modern"
        raise
    except (RookeryError, TransportClosed) as error:
        # Some servers survive the probe, but not the request after it. Where requests have headers, none is lost so.
        if not was_probed or client.transport.uses_headers or client.transport.close_reason is None:
            raise
        logger.debug("a server ended after the era probe, and is started again without it: %s", error)
        await _reopen(client)
        await _initialize(client)
    return "handshake"


async def _try_handshake(client: Client) -> bool:
    """Return whether the handshake succeeded. If not, the connection is a new one."""
    try:
        await _initialize(client)
    except (WireError, TransportClosed, TransportUnsupported) as error:
        logger.debug("a server refused the handshake: %s", error)
    except RookeryError as error:
        if error.code == "needs-auth":
            raise
        logger.debug("a server refused the handshake: %s", error)
    else:
        return True
    await _reopen(client)
    return False


async def _reopen(client: Client) -> None:
    """Replace the connection by a new one; a local server is started again."""
    client.revision = ""
    await client.transport.close()
    await client.open()


async def _probe(client: Client, max_seconds: float | None = None) -> Literal["modern", "refused", "silent", "ended"]:
    """Send server/discover as a modern client does, and return whether the server is modern, or else how it took that.

    Any unexpected response counts as a refusal. After the probe the revision is that of the server, or unknown.
    """
    requested = revisions.LATEST
    seconds = min(_PROBE_SECONDS, client.timeouts.startup / 2) if max_seconds is None else max_seconds
    outcome: Literal["refused", "silent", "ended"] = "refused"
    for _ in range(2):
        client.revision = requested
        try:
            result = await client.request("server/discover", {}, seconds=seconds, timeout_name="start-up")
            discovered = msgspec.json.decode(result, type=_Discovered)
        except WireError as error:
            client.revision = ""
            supported = _list_supported(error)
            if not any(revision in revisions.MODERN for revision in supported):
                if supported and not any(revision in revisions.HANDSHAKE for revision in supported):
                    raise
                return "refused"
            requested = next(revision for revision in supported if revision in revisions.MODERN)
            continue
        except RookeryError as error:
            if error.code == "needs-auth":
                raise
            outcome = "ended" if error.code == "upstream-failed" else "silent"
            break
        except (TransportUnsupported, msgspec.DecodeError):
            break
        if not any(version in revisions.MODERN for version in discovered.supportedVersions):
            break
        client.capabilities = discovered.capabilities
        client.instructions = discovered.instructions
        client.info = discovered.meta.get(revisions.META_SERVER, {})
        await client.transport.on_revision_agreed(client.revision)
        return "modern"
    client.revision = ""
    return outcome


def _list_supported(error: WireError) -> list[str]:
    """Return the revisions that a server offers when it refuses ours."""
    if error.code != UNSUPPORTED_VERSION:
        return []
    try:
        return msgspec.convert(error.data, _Supported).supported
    except msgspec.ValidationError:
        return []


async def _initialize(client: Client) -> None:
    """Do the handshake: initialize, check the revision, and confirm."""
    params = {
        "protocolVersion": revisions.LATEST_HANDSHAKE,
        "capabilities": client.identity.capabilities,
        "clientInfo": client.identity.info,
    }
    result = await client.request("initialize", params, seconds=client.timeouts.startup, timeout_name="start-up")
    try:
        initialized = msgspec.json.decode(result, type=_Initialized)
    except msgspec.DecodeError as error:
        raise TransportClosed(f"the response to initialize is invalid: {error}") from None
    if initialized.protocolVersion not in revisions.HANDSHAKE:
        raise TransportClosed(f"the server speaks only {initialized.protocolVersion!r}, which is not supported")
    client.revision = initialized.protocolVersion
    client.capabilities = initialized.capabilities
    client.info = initialized.serverInfo
    client.instructions = initialized.instructions
    await client.notify("notifications/initialized", {})
    await client.transport.on_revision_agreed(client.revision)
    client.reopen_session = lambda: _initialize(client)


class _Supported(msgspec.Struct):
    supported: list[str] = []


class _Discovered(msgspec.Struct):
    supportedVersions: list[str]
    capabilities: dict[str, Any] = {}
    instructions: str | None = None
    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict[str, Any])


class _Initialized(msgspec.Struct):
    protocolVersion: str
    capabilities: dict[str, Any] = {}
    serverInfo: Mapping[str, Any] = {}
    instructions: str | None = None


# `failed`: the connection was lost, and the next use connects again. `backoff`: connecting failed, and every use fails
# until the pause is over.
ConnectionState = Literal["pending", "connected", "failed", "backoff", "stopped"]
ConnectClient = Callable[[Era | None], Awaitable[tuple[Client, Era]]]
HandleState = Callable[[ConnectionState, str | None], None]


def _ignore_state(state: ConnectionState, error: str | None) -> None:
    """Ignore a change of state."""


class ReconnectingClient:
    """Holds the client of one server, and connects it on use.

    `on_state` is called with each new state and its error.
    """

    def __init__(
        self,
        connect: ConnectClient,
        on_state: HandleState = _ignore_state,
        *,
        known_era: Era | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.era: Era | None = known_era
        self.connected: Client | None = None
        self.failures = 0
        self._factory = connect
        self._on_state = on_state
        self._clock = clock
        self._connected_at = 0.0
        self._retry_at = 0.0
        self._error = RookeryError("upstream-failed", "not connected")
        self._closed = False
        self._skip_probe = False
        self._tasks = TaskSet("mcp connection")
        self._connecting: asyncio.Task[Client | RookeryError] | None = None
        self._closing_tasks: set[asyncio.Task[None]] = set()

    @property
    def is_paused(self) -> bool:
        """Whether connecting failed and the pause before the next attempt is not over."""
        return self._compute_pause_left() > 0

    async def get_client(self) -> Client:
        """Return the connected client. Connect first if necessary.

        Concurrent callers wait for the same attempt, and a caller that is cancelled does not stop it.
        """
        if self.connected is not None:
            return self.connected
        if self._closed:
            raise RookeryError("upstream-failed", "the connection was closed")
        if self._connecting is None or self._connecting.done():
            if self.is_paused:
                message = (
                    f"{self._error.message}; the next attempt is possible in {math.ceil(self._compute_pause_left())} s"
                )
                raise RookeryError(_get_retry_code(self._error.code), message, self._error.remedy)
            self._connecting = self._tasks.start(self._connect(), "connect")
        connecting = self._connecting
        await asyncio.wait([connecting])
        if connecting.cancelled():
            raise RookeryError("upstream-failed", "stopped while connecting")
        outcome = connecting.result()
        if isinstance(outcome, RookeryError):
            raise RookeryError(outcome.code, outcome.message, outcome.remedy)
        return outcome

    async def can_connect(self) -> bool:
        """Return whether the server can be connected."""
        try:
            await self.get_client()
        except RookeryError:
            return False
        return True

    def retry_now(self) -> None:
        """End the pause: something has changed that makes an attempt worthwhile."""
        self._retry_at = 0.0

    async def fail(self, client: Client, error: RookeryError) -> None:
        """Disconnect a client that is connected but unusable. Ignore one that is no longer the current one."""
        if client is self.connected:
            self._detach()
            self._record_failure(error)
            await asyncio.wait([self._close_client(client)])

    async def stop(self) -> None:
        """Close the connection. The next use connects again."""
        connecting = self._connecting
        client = self._detach()
        if connecting is not None and not connecting.done():
            connecting.cancel()
            await asyncio.wait([connecting])
        self._on_state("stopped", None)
        if client is not None:
            await asyncio.wait([self._close_client(client)])

    async def close(self) -> None:
        """Close the connection for good."""
        self._closed = True
        await self.stop()
        if self._closing_tasks:
            await asyncio.wait(self._closing_tasks)

    # Connecting

    async def _connect(self) -> Client | RookeryError:
        self._on_state("pending", None)
        # Two connections to one server at the same time could interfere with each other.
        if self._closing_tasks:
            await asyncio.wait(self._closing_tasks)
        try:
            client, self.era = await self._factory("handshake" if self._skip_probe and self.era is None else self.era)
        except RookeryError as error:
            # What blocked the server may have been the era probe: the next attempt is without it.
            self._skip_probe = error.code == "timeout" and not self._skip_probe
            return self._record_failure(error)
        except Exception as error:
            logger.exception("connecting failed unexpectedly")
            return self._record_failure(RookeryError("internal-error", f"{type(error).__name__}: {error}"))
        self.connected = client
        self._connected_at = self._clock.monotonic()
        client.on_lost = lambda reason: self._on_lost(client, reason)
        self._on_state("connected", None)
        if client.close_reason is not None:
            self._on_lost(client, client.close_reason)
        return client

    def _record_failure(self, error: RookeryError) -> RookeryError:
        self.failures += 1
        self._error = error
        self._retry_at = self._clock.monotonic() + compute_backoff(self.failures)
        self._on_state("backoff", error.message)
        return error

    def _on_lost(self, client: Client, reason: str) -> None:
        if client is not self.connected:
            return
        self._detach()
        self._close_client(client)
        if self._clock.monotonic() - self._connected_at < _STABLE_SECONDS:
            self._record_failure(
                RookeryError("upstream-failed", f"the connection was lost: {reason}", client.diagnosis())
            )
        else:
            self.failures = 0
            self._on_state("failed", reason)

    # Closing

    def _detach(self) -> Client | None:
        client, self.connected = self.connected, None
        return client

    def _close_client(self, client: Client) -> asyncio.Task[None]:
        """Close a client in a task of its own, which continues if the caller that waits for it is cancelled."""
        task = self._tasks.start(client.close(), "end")
        self._closing_tasks.add(task)
        task.add_done_callback(self._closing_tasks.discard)
        return task

    def _compute_pause_left(self) -> float:
        return self._retry_at - self._clock.monotonic()


def _get_retry_code(code: str) -> str:
    """Return the error code during a pause: `needs-*` stays, as only the user can change that; others may not recur."""
    return code if code.startswith("needs-") else "upstream-failed"
