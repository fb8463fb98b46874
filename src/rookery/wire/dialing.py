"""Finds the first address of a host that takes a connection, without waiting long for one that does not."""

import asyncio
import itertools
import socket
from collections.abc import Sequence
from typing import Any

from rookery.system.tasks import TaskSet

# RFC 8305: the next address is tried beside one that has not answered by then.
_STAGGER_SECONDS = 0.25

Address = tuple[socket.AddressFamily, Any]


async def dial(host: str, port: int) -> socket.socket:
    """A connected socket. Raises OSError of the address that was tried first."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = in_turns([(family, address) for family, _, _, _, address in found])
    if len(addresses) == 1:
        return await _try(*addresses[0])
    return await _race(addresses)


def in_turns(addresses: Sequence[Address]) -> list[Address]:
    """Those of the preferred family and the others by turns."""
    preferred = [one for one in addresses if one[0] == addresses[0][0]]
    others = [one for one in addresses if one[0] != addresses[0][0]]
    pairs = itertools.zip_longest(preferred, others)
    return [one for pair in pairs for one in pair if one is not None]


async def _race(addresses: Sequence[Address]) -> socket.socket:
    tasks = TaskSet("dial")
    attempts: list[asyncio.Task[socket.socket | OSError]] = []
    waiting: set[asyncio.Task[socket.socket | OSError]] = set()
    left = list(addresses)
    won: socket.socket | None = None
    try:
        while won is None and (left or waiting):
            if left:
                attempts.append(tasks.start(_attempt(*left.pop(0)), "address"))
                waiting.add(attempts[-1])
            done, waiting = await asyncio.wait(
                waiting, timeout=_STAGGER_SECONDS if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            won = next((made for one in done if isinstance(made := one.result(), socket.socket)), None)
    finally:
        await tasks.close()
        for one in attempts:
            if not one.cancelled() and isinstance(made := one.result(), socket.socket) and made is not won:
                made.close()
    if won is not None:
        return won
    first = attempts[0].result()
    assert isinstance(first, OSError)
    raise first


async def _attempt(family: socket.AddressFamily, address: Any) -> socket.socket | OSError:
    try:
        return await _try(family, address)
    except OSError as error:
        return error


async def _try(family: socket.AddressFamily, address: Any) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made
