"""A client of the event stream."""

import json
from typing import Any

from tests.support.daemon.process import Daemon


class Reader:
    """A client of the event stream, on a plain socket."""

    def __init__(self, daemon: Daemon, path: str) -> None:
        self._socket = daemon.connect()
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\nAuthorization: Bearer {daemon.token}\r\n\r\n"
        self._socket.sendall(head.encode())
        self._file = self._socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])

    def next(self) -> dict[str, Any] | None:
        """Return the next event; None at the end of the stream."""
        found: dict[str, Any] = {}
        while line := self._file.readline():
            name, _, value = line.decode().strip().partition(": ")
            if name in ("id", "event"):
                found[name] = value
            elif name == "data":
                return found | {"data": json.loads(value)}
        return None

    def until(self, type_: str) -> dict[str, Any]:
        while event := self.next():
            if event["event"] == type_:
                return event
        raise AssertionError(f"the stream ended before {type_}")

    def close(self) -> None:
        self._file.close()
        self._socket.close()
