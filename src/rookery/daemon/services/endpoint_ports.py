"""The port of each workspace's MCP server: bound once it is chosen, and kept over restarts."""

import asyncio
import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rookery.system.errors import RookeryError
from rookery.system.store import Store
from rookery.wire.http.listener import bind_port
from rookery.workspaces.worktrees import read_git_folder

_LAST_PORT = 65_535


class BoundPort(NamedTuple):
    """A socket that listens on `port`. `previous` is the workspace's earlier port, if it could not be bound again."""

    socket: socket.socket
    port: int
    previous: int | None = None


class EndpointPorts:
    """The ports of workspaces, which are identified by their own git folder. `first` is the lowest port."""

    def __init__(self, store: Store, first: int) -> None:
        self._store = store
        self._first = first
        self._lock = asyncio.Lock()

    async def bind(self, git_folder: Path) -> BoundPort:
        """Bind the port that the workspace had, else the first one that is free and kept for no other workspace."""
        async with self._lock:
            assigned = await self._load_assigned()
            last = assigned.pop(str(git_folder), 0)
            for port in self._list_candidates(last, set(assigned.values())):
                if (bound := bind_port(port)) is not None:
                    try:
                        await self._save(git_folder, port, last)
                    except BaseException:
                        bound.close()
                        raise
                    return BoundPort(bound, port, last if last >= self._first and port != last else None)
        raise RookeryError(
            "port-taken",
            f"no port from {self._first} upwards is free on 127.0.0.1",
            "stop a program that uses one, or choose another first port: rookery config set endpoints.first_port 3000",
        )

    def _list_candidates(self, last: int, others: set[int]) -> Iterator[int]:
        """Yield ports in the order they are tried: those kept for other workspaces come last."""
        if last >= self._first:
            yield last
        for port in range(self._first, _LAST_PORT + 1):
            if port not in others and port != last and not _is_used_on_ipv6(port):
                yield port
        yield from sorted(port for port in others if port >= self._first)

    async def _load_assigned(self) -> dict[str, int]:
        """Return the ports of workspaces that still exist, and delete those of others."""
        rows: list[tuple[str, int]] = await self._store.read(
            lambda db: db.execute("SELECT workspace, port FROM endpoint_ports").fetchall()
        )
        deleted = [(key,) for key, _ in rows if not Path(key).is_dir()]
        if deleted:
            await self._store.write(
                lambda db: db.executemany("DELETE FROM endpoint_ports WHERE workspace = ?", deleted)
            )
        return {key: port for key, port in rows if (key,) not in deleted}

    async def _save(self, git_folder: Path, port: int, last: int) -> None:
        if port != last:
            row = (str(git_folder), port)
            await self._store.write(lambda db: db.execute("INSERT OR REPLACE INTO endpoint_ports VALUES (?, ?)", row))


def resolve_git_folder(workspace: Path) -> Path | None:
    """Return the git folder of the workspace at this path, which stays the same when the workspace is moved."""
    git_folder = read_git_folder(workspace)
    return git_folder.resolve() if git_folder is not None else None


def _is_used_on_ipv6(port: int) -> bool:
    """Return whether another program uses the same port of ::1, where clients of `localhost` would connect."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("::1", port))
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False
