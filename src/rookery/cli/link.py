"""The line to the daemon: HTTP over its Unix socket, on a plain socket because that starts fastest."""

import os
import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rookery.cli.failure import Failure, failure_from

_SECONDS = 60.0


class Link:
    """One request on one connection."""

    def __init__(self, path: str, pid: int | None = None) -> None:
        self.peer: int | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_SECONDS)
            self._socket.connect(path)
            self.peer = require_ours(self._socket, pid)
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
        seconds: float | None = _SECONDS,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """Send a request and read the head of its answer; answers the status. None for seconds: wait for ever."""
        self._socket.settimeout(seconds)
        head = f"{method} {path} HTTP/1.1\r\nhost: rookery\r\nconnection: close\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        if body is not None:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self._socket.sendall(head.encode() + b"\r\n" + (body or b""))
        status = int(self._file.readline().split()[1])
        self._chunked = self.streams = False
        while (line := self._file.readline().lower()) not in (b"\r\n", b""):
            self._chunked |= line.startswith(b"transfer-encoding: chunked")
            self.streams |= line.startswith(b"content-type: text/event-stream")
        return status

    def read(self) -> bytes:
        """The whole body."""
        return b"".join(self.chunks()) if self._chunked else self._file.read()

    def chunks(self) -> Iterator[bytes]:
        """The body of a streamed answer as it comes."""
        while size := int(self._file.readline().split(b";")[0] or b"0", 16):
            yield self._file.read(size)
            self._file.readline()

    def lines(self) -> Iterator[bytes]:
        self._socket.settimeout(None)
        rest = b""
        for chunk in self.chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole

    def cut(self) -> None:
        """End what another thread is reading."""
        import contextlib

        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def require_ours(connected: socket.socket, pid: int | None) -> int | None:
    """The process at the other end, where the system tells: it runs as we do, and is `pid` if that is known."""
    if sys.platform != "linux":
        return None
    packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    peer, uid, _ = struct.unpack("3i", packed)
    if uid != os.getuid() or (pid is not None and pid != peer):
        raise OSError("somebody else answers there")
    return peer


def connect() -> Link | None:
    """A link to the running daemon, None if there is none."""
    try:
        return Link(*address())
    except (OSError, KeyError, TypeError):
        return None


def address() -> tuple[str, int | None]:
    """The daemon's socket, and its pid where it is known. Raises KeyError where daemon.json is not whole."""
    found = runtime()
    if found is not None:
        return found["socket"], found["pid"]
    # Somebody may have removed daemon.json under a running daemon; its socket is where it always is.
    from rookery.system.places import state_folder

    return str(state_folder() / "rookery.sock"), None


def runtime() -> dict[str, Any] | None:
    """What daemon.json says; only a connection proves that it is still true."""
    from rookery.system.places import runtime_file, state_folder

    try:
        text = runtime_file(state_folder()).read_bytes()
    except OSError:
        return None
    import json

    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType]


def call(method: str, path: str, body: object = None, *, start: bool = True, seconds: float = _SECONDS) -> bytes:
    """One call to the daemon, which is started first if need be; the answer's bytes, or a `Failure`."""
    return exchange(reach(start=start), method, path, body, seconds=seconds)


def reach(*, start: bool) -> Link:
    """A link to the daemon, which is started first if need be."""
    link = connect()
    if link is None:
        if not start:
            raise Failure("daemon-unreachable", "no daemon is running", "start it with `rookery up -d`")
        from rookery.cli.starting import start_daemon

        start_daemon()
        link = connect()
        if link is None:
            raise Failure("daemon-unreachable", "the daemon started and is gone again", "see `rookery logs`")
    return link


def exchange(link: Link, method: str, path: str, body: object = None, *, seconds: float = _SECONDS) -> bytes:
    """One request on `link`, which is closed after it; the answer's bytes, or a `Failure`."""
    data = None
    if body is not None:
        import json

        data = json.dumps(body).encode()
    try:
        status = link.request(method, path, data, seconds=seconds)
        answer = link.read()
    except TimeoutError:
        raise Failure("timeout", f"the daemon did not answer within {seconds:g} s", "see `rookery logs`") from None
    except (OSError, ValueError, IndexError):
        raise Failure("daemon-unreachable", "the daemon broke off", "see `rookery logs`") from None
    finally:
        link.close()
    if status >= 400:
        raise failure_of(answer, status)
    return answer


def failure_of(answer: bytes, status: int) -> Failure:
    import json

    try:
        return failure_from(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return Failure("internal-error", f"the daemon answered {status}", "see `rookery logs`")
