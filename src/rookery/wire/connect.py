"""Finds out what a server speaks: the modern era, a handshake revision, or the older HTTP+SSE."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from rookery.system.errors import RookeryError
from rookery.wire import revisions
from rookery.wire.channel import Channel, ChannelClosed, NoSuchTransport
from rookery.wire.client import Client
from rookery.wire.jsonrpc import UNSUPPORTED_VERSION, WireError

Era = Literal["modern", "handshake", "sse"]

_PROBE_SECONDS = 5.0
_NAMES = ("Streamable HTTP", "HTTP+SSE")


async def connect(
    make: Callable[[Channel], Client],
    channel: Channel,
    *,
    older: Channel | None = None,
    known: Era | None = None,
) -> tuple[Client, Era]:
    """A connected client and the era that it found, which the caller remembers as `known` for the next time.

    `older` is the channel to fall back to where the server does not speak Streamable HTTP at all.
    """
    # What is remembered is tried first; it may have become untrue.
    ways = [channel] if older is None else [older, channel] if known == "sse" else [channel, older]
    client = make(ways[0])
    seconds = client.timeouts.startup
    tried = ""
    try:
        async with asyncio.timeout(seconds):
            if len(ways) == 2:
                try:
                    return await _connect_over(client, known, older)
                except (NoSuchTransport, ChannelClosed, RookeryError) as error:
                    if known != "sse" and not isinstance(error, NoSuchTransport):
                        raise
                    names = _NAMES if known != "sse" else _NAMES[::-1]
                    tried = f"over {names[0]}: {error}; over {names[1]}: "
                await client.close()
                client = make(ways[1])
                known = None
            return await _connect_over(client, known, older)
    except TimeoutError:
        told = client.channel.diagnosis()
        await client.close()
        raise RookeryError("timeout", f"not connected within the start-up time-out of {seconds:g} s", told) from None
    except (ChannelClosed, NoSuchTransport) as error:
        await client.close()
        raise RookeryError("upstream-failed", f"cannot connect: {tried}{error}", client.channel.diagnosis()) from None
    except WireError as error:
        await client.close()
        raise RookeryError("upstream-failed", f"cannot connect: {error.message} ({error.code})") from None
    except BaseException:
        await client.close()
        raise


async def _connect_over(client: Client, known: Era | None, older: Channel | None) -> tuple[Client, Era]:
    if client.channel is not older and (older is not None or known != "sse"):
        return await _connect_streamable(client, known)
    await client.open()
    await _shake_hands(client)
    return client, "sse"


async def _connect_streamable(client: Client, known: Era | None) -> tuple[Client, Era]:
    await client.open()
    if known != "handshake" and await _discover(client):
        return client, "modern"
    try:
        await _shake_hands(client)
    except WireError as error:
        # It took so long to start that it heard our first question when we had given it up.
        if any(one in revisions.MODERN for one in _supported(error)) and await _discover(client):
            return client, "modern"
        raise
    return client, "handshake"


async def _discover(client: Client) -> bool:
    """Ask as a modern client does; whatever a handshake server makes of that means that it is one."""
    wanted = revisions.LATEST
    seconds = min(_PROBE_SECONDS, client.timeouts.startup / 2)
    for _ in range(2):
        client.revision = wanted
        try:
            result = await client.request("server/discover", {}, seconds=seconds, what="start-up")
            found = msgspec.json.decode(result, type=_Discovered)
        except WireError as error:
            client.revision = ""
            supported = _supported(error)
            if not any(one in revisions.MODERN for one in supported):
                if supported and not any(one in revisions.HANDSHAKE for one in supported):
                    raise
                return False
            wanted = next(one for one in supported if one in revisions.MODERN)
            continue
        except RookeryError as error:
            if error.code == "needs-auth":
                raise
            if error.code == "upstream-failed":
                # Some servers do not survive a question before the handshake.
                await client.channel.close()
                await client.open()
            break
        except (NoSuchTransport, msgspec.DecodeError):
            break
        if not any(version in revisions.MODERN for version in found.supportedVersions):
            break
        client.capabilities = found.capabilities
        client.instructions = found.instructions
        client.info = found.meta.get(revisions.META_SERVER, {})
        await client.channel.agreed(client.revision)
        return True
    client.revision = ""
    return False


def _supported(error: WireError) -> list[str]:
    """The revisions that a server offers where it refuses ours."""
    if error.code != UNSUPPORTED_VERSION:
        return []
    try:
        return msgspec.convert(error.data, _Supported).supported
    except msgspec.ValidationError:
        return []


async def _shake_hands(client: Client) -> None:
    hello = {
        "protocolVersion": revisions.LATEST_HANDSHAKE,
        "capabilities": client.identity.capabilities,
        "clientInfo": client.identity.info,
    }
    result = await client.request("initialize", hello, seconds=client.timeouts.startup, what="start-up")
    try:
        found = msgspec.json.decode(result, type=_Initialized)
    except msgspec.DecodeError as error:
        raise ChannelClosed(f"the answer to initialize does not fit: {error}") from None
    if found.protocolVersion not in revisions.HANDSHAKE:
        raise ChannelClosed(f"it speaks only {found.protocolVersion!r}, which is not supported")
    client.revision = found.protocolVersion
    client.capabilities, client.info, client.instructions = found.capabilities, found.serverInfo, found.instructions
    await client.notify("notifications/initialized", {})
    await client.channel.agreed(client.revision)
    client.renew = lambda: _shake_hands(client)


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
