"""Fetching what a server offers."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from rookery.gateway.catalog import CAPABILITY, LISTS, Catalog, Entry, Kind, entries
from rookery.system.errors import RookeryError
from rookery.wire.client import Client
from rookery.wire.jsonrpc import WireError

# Told in words what of a server is of no use.
Warn = Callable[[str], None]

_MOST_ENTRIES = 10_000


async def fetch(
    warn: Warn, client: Client, kinds: Iterable[Kind] = tuple(LISTS), old: Catalog | None = None
) -> Catalog:
    """A new catalog in which `kinds` are as the server lists them now, and the rest is as it was in `old`.

    What is private to an authorization may be kept: a server is only shared by those who have the same credentials.
    """
    found: dict[str, Any] = {kind: old.of(kind) for kind in LISTS} if old is not None else {}
    lives: dict[Kind, float] = dict(old.lives) if old is not None else {}
    wanted: list[Kind] = [kind for kind in kinds if client.capabilities.get(CAPABILITY[kind]) is not None]
    # Side by side, so that one that takes its time holds up no other.
    listed = await asyncio.gather(*(_list(warn, client, kind) for kind in wanted))
    for kind, (offered, life) in zip(wanted, listed, strict=True):
        found[kind] = offered
        able: Any = client.capabilities[CAPABILITY[kind]]
        if life is not None and not (isinstance(able, dict) and able.get("listChanged")):  # pyright: ignore[reportUnknownMemberType]
            lives[kind] = life
    return Catalog(
        **found, capabilities=client.capabilities, info=client.info, instructions=client.instructions, lives=lives
    )


async def _list(warn: Warn, client: Client, kind: Kind) -> tuple[list[Entry], float | None]:
    method, key, _ = LISTS[kind]
    try:
        listed = await client.list_all(method, key)
        if len(listed) > _MOST_ENTRIES:
            raise RookeryError("upstream-failed", f"it lists {len(listed)} {kind}; {_MOST_ENTRIES} are the most")
    except (RookeryError, WireError) as error:
        if kind == "tools":
            raise RookeryError("upstream-failed", f"Failed to get tools: {error}") from None
        # A server is of use without its prompts or resources; some declare what they do not have.
        warn(f"{kind} cannot be listed: {error}")
        return [], None
    good, problems = entries(kind, listed)
    for problem in problems:
        warn(problem)
    return good, listed.lives
