"""Connections to the daemon: HTTP over its Unix socket.

A plain socket is used because it starts fastest.
"""

import os
import socket
import struct
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rookery.daemon_client.failure import Failure, make_failure

# How long to wait for the response of an operation that has no time limit of its own.
REQUEST_SECONDS = 600.0

_TIMEOUT_SECONDS = 60.0
_MAX_RUNTIME_FILE_BYTES = 65_536
_MAX_TOKEN_BYTES = 1024


class DaemonConnection:
    """A connection to the daemon that carries one request."""

    def __init__(self, path: str, pid: int | None = None) -> None:
        self.peer_pid: int | None = None
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except PermissionError:
            raise Failure(
                "forbidden",
                "this program is confined by a sandbox, and the daemon's socket is outside of it",
                "use the tools of Rookery's MCP server; or run the command yourself, in a terminal",
            ) from None
        try:
            self._socket.settimeout(_TIMEOUT_SECONDS)
            self._socket.connect(path)
            self.peer_pid = require_own_peer(self._socket, pid)
        except BaseException:
            self._socket.close()
            raise
        self._file = self._socket.makefile("rb")

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        seconds: float | None = _TIMEOUT_SECONDS,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """Send a request, read the head of its response and return the status. `seconds=None` waits without limit."""
        self._socket.settimeout(seconds)
        head = f"{method} {path} HTTP/1.1\r\nhost: rookery\r\nconnection: close\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in {**read_authorization(), **(headers or {})}.items())
        if body is not None:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self._socket.sendall(head.encode() + b"\r\n" + (body or b""))
        status = int(self._file.readline().split()[1])
        self._chunked = self.is_stream = False
        self._length = 0
        while (line := self._file.readline().lower()) not in (b"\r\n", b""):
            self._chunked |= line.startswith(b"transfer-encoding: chunked")
            if line.startswith(b"content-length:"):
                self._length = int(line.partition(b":")[2])
            self.is_stream |= line.startswith(b"content-type: text/event-stream")
        return status

    def read(self) -> bytes:
        """Return the whole body. Raise OSError if the connection ends before it does."""
        if self._chunked:
            return b"".join(self.chunks())
        body = self._file.read()
        if len(body) < self._length:
            raise OSError("the connection ended in the middle of the response")
        return body

    def chunks(self) -> Iterator[bytes]:
        """Yield the chunks of a streamed body as they arrive. Raise OSError if the connection ends before the body."""
        while True:
            head = self._file.readline()
            size = int(head.split(b";")[0], 16) if head.endswith(b"\n") else -1
            if size == 0:
                return
            chunk = self._file.read(size) if size > 0 else b""
            if len(chunk) != size:
                raise OSError("the connection ended in the middle of the response")
            yield chunk
            self._file.readline()

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of a streamed body as they arrive, without a time limit."""
        self._socket.settimeout(None)
        rest = b""
        for chunk in self.chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole

    def events(self) -> Iterator[tuple[str, bytes]]:
        """Yield the kind and the data of each server-sent event of a streamed body."""
        kind = ""
        for line in self.lines():
            if line.startswith(b"event: "):
                kind = line[7:].decode()
            elif line.startswith(b"data: "):
                yield kind, line[6:]

    def shutdown(self) -> None:
        """Shut the socket down, so that a thread that reads from it stops."""
        import contextlib

        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def require_own_peer(sock: socket.socket, pid: int | None) -> int | None:
    """Return the pid of the process at the other end; None where the system does not report it.

    Raise OSError if that process runs as another user, or if its pid is not `pid`.
    """
    if sys.platform != "linux":
        return None
    packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    peer, uid, _ = struct.unpack("3i", packed)
    if uid != os.getuid() or (pid is not None and pid != peer):
        raise OSError("another process listens on the socket")
    return peer


def read_authorization() -> dict[str, str]:
    """Return the header with the owner's token, which the daemon requires if anything is confined.

    Without the file, or without the right to read it, there is no header.
    """
    from rookery.system.fs.atomic import read_plain
    from rookery.system.fs.paths import state_folder, token_file

    try:
        token = read_plain(token_file(state_folder()), _MAX_TOKEN_BYTES).decode("ascii").strip()
    except (OSError, ValueError):
        return {}
    is_plain = all(character.isalnum() or character in "-_" for character in token)
    return {"authorization": f"Bearer {token}"} if token and is_plain else {}


def connect() -> DaemonConnection | None:
    """Return a connection to the running daemon, or None if none runs."""
    for path, pid in list_addresses():
        try:
            return DaemonConnection(path, pid)
        except (OSError, TypeError, ValueError):
            continue
    return None


def list_addresses() -> list[tuple[str, int | None]]:
    """Return the paths at which the daemon's socket may be, with the daemon's pid where it is known.

    daemon.json may have been removed or changed while the daemon runs, so the default path is always included.
    """
    from rookery.system.fs.paths import state_folder

    runtime = read_runtime_file() or {}
    recorded = [(runtime["socket"], runtime["pid"])] if {"socket", "pid"} <= runtime.keys() else []
    return [*recorded, (str(state_folder() / "rookery.sock"), None)]


def read_runtime_file() -> dict[str, Any] | None:
    """Return the content of daemon.json, or None if it is unusable. Only a connection proves that it is current."""
    import json

    from rookery.system.fs.atomic import read_plain
    from rookery.system.fs.paths import runtime_file, state_folder

    try:
        content = json.loads(read_plain(runtime_file(state_folder()), _MAX_RUNTIME_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None  # pyright: ignore[reportUnknownVariableType]


def call(method: str, path: str, body: object = None, *, start: bool = True, seconds: float = REQUEST_SECONDS) -> bytes:
    """Send one request to the daemon, which is started if need be, and return the body. Raise `Failure` on errors."""
    return send_request(connect_or_start(start=start), method, path, body, seconds=seconds)


def connect_or_start(*, start: bool) -> DaemonConnection:
    """Return a connection to the daemon. If none runs, start it, or raise `Failure` without `start`."""
    connection = connect()
    if connection is None:
        if not start:
            raise Failure("daemon-unreachable", "no daemon is running", "start it with `rookery up -d`")
        from rookery.daemon_client.start import start_daemon

        start_daemon()
        connection = connect()
        if connection is None:
            raise Failure("daemon-unreachable", "the daemon started, but stopped again", "see `rookery logs`")
    return connection


def send_request(
    connection: DaemonConnection, method: str, path: str, body: object = None, *, seconds: float = _TIMEOUT_SECONDS
) -> bytes:
    """Send one request, close the connection and return the body. Raise `Failure` on errors."""
    data = None
    if body is not None:
        import json

        data = json.dumps(body).encode()
    with _translate_errors(connection, seconds):
        status = connection.request(method, path, data, seconds=seconds)
        response = connection.read()
    if status >= 400:
        raise parse_failure(response, status)
    return response


def stream_events(
    method: str, path: str, body: object, *, start: bool = True, seconds: float = _TIMEOUT_SECONDS
) -> Iterator[tuple[str, bytes]]:
    """Send one request and yield the events of its response. Raise `Failure` on an `error` event or a lost daemon."""
    import json

    connection = connect_or_start(start=start)
    with _translate_errors(connection, seconds):
        status = connection.request(method, path, json.dumps(body).encode(), seconds=seconds)
        if status >= 400:
            raise parse_failure(connection.read(), status)
        for kind, data in connection.events():
            if kind == "error":
                raise parse_failure(data, status)
            yield kind, data


@contextmanager
def _translate_errors(connection: DaemonConnection, seconds: float) -> Generator[None]:
    """Close the connection after the block. Raise `Failure` if the daemon does not respond in time or disconnects."""
    try:
        yield
    except TimeoutError:
        raise Failure("timeout", f"the daemon did not respond within {seconds:g} s", "see `rookery logs`") from None
    except (OSError, ValueError, IndexError):
        raise Failure("daemon-unreachable", "the daemon closed the connection", "see `rookery logs`") from None
    finally:
        connection.close()


def parse_failure(body: bytes, status: int) -> Failure:
    """Return the failure for an error response; `internal-error` if its body cannot be parsed."""
    import json

    try:
        return make_failure(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return Failure("internal-error", f"the daemon returned status {status}", "see `rookery logs`")
