"""The port of each workspace's MCP server, held from the moment it is chosen, and the same one at every start."""

import asyncio
import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rookery.system.errors import RookeryError
from rookery.system.store import Store
from rookery.wire.listener import bind_port
from rookery.workspaces.worktrees import named_git_folder

_LAST = 65_535


class Held(NamedTuple):
    """A socket that listens on `port`. `before` is the port that the workspace had, if it could not be had again."""

    socket: socket.socket
    port: int
    before: int | None = None


class EndpointPorts:
    """Workspaces are known by their own git folder. `first` is where the ports begin."""

    def __init__(self, store: Store, first: int) -> None:
        self._store, self._first = store, first
        self._turn = asyncio.Lock()

    async def hold(self, own: Path) -> Held:
        """Bind the port that the workspace had, or else the first one that is free and no other workspace's."""
        async with self._turn:
            given = await self._given()
            last = given.pop(str(own), 0)
            for port in self._wanted(last, set(given.values())):
                if (bound := bind_port(port)) is not None:
                    try:
                        await self._keep(own, port, last)
                    except BaseException:
                        bound.close()
                        raise
                    return Held(bound, port, last if last >= self._first and port != last else None)
        raise RookeryError(
            "port-taken",
            f"no port of 127.0.0.1 from {self._first} on is free",
            "end a program that holds one, or begin elsewhere: rookery config set endpoints.first_port 3000",
        )

    def _wanted(self, last: int, others: set[int]) -> Iterator[int]:
        """In the order they are tried: ports that closed workspaces had are taken only where there is nothing else."""
        if last >= self._first:
            yield last
        for port in range(self._first, _LAST + 1):
            if port not in others and port != last and not _is_held_by_localhost(port):
                yield port
        yield from sorted(port for port in others if port >= self._first)

    async def _given(self) -> dict[str, int]:
        """What was given to workspaces that are still there; the others' ports are free again."""
        rows: list[tuple[str, int]] = await self._store.read(
            lambda db: db.execute("SELECT workspace, port FROM endpoint_ports").fetchall()
        )
        gone = [(key,) for key, _ in rows if not Path(key).is_dir()]
        if gone:
            await self._store.write(lambda db: db.executemany("DELETE FROM endpoint_ports WHERE workspace = ?", gone))
        return {key: port for key, port in rows if (key,) not in gone}

    async def _keep(self, own: Path, port: int, last: int) -> None:
        if port != last:
            row = (str(own), port)
            await self._store.write(lambda db: db.execute("INSERT OR REPLACE INTO endpoint_ports VALUES (?, ?)", row))


def own_of(workspace: Path) -> Path | None:
    """The git folder of the workspace at this path, which it keeps when it is moved."""
    found = named_git_folder(workspace)
    return found.resolve() if found is not None else None


def _is_held_by_localhost(port: int) -> bool:
    """Whether another program is at the same port of ::1: for a client that says `localhost` it would be there."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(("::1", port))
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False
