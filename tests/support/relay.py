"""Between a command and the daemon: counts requests, and holds events back."""

import queue
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.daemon.process import SECONDS

_EVENTS = "/api/events"


class Relay:
    """Passes requests on to the daemon at `target`. `state` is a state folder for commands that should use it."""

    def __init__(self, target: Path, state: Path) -> None:
        self.state = state
        self._target = target
        self._requests = queue.Queue[str]()
        self._flows, self._held = threading.Event(), threading.Event()
        self._flows.set()
        self._sockets = list[socket.socket]()
        self._threads = list[threading.Thread]()

    def __enter__(self) -> Self:
        self.state.mkdir(mode=0o700)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.state / "rookery.sock"))
        self._listener.listen()
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flows.set()
        for each in [self._listener, *self._sockets]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(SECONDS)
        for each in [self._listener, *self._sockets]:
            each.close()

    def next(self, seconds: float = SECONDS) -> str | None:
        """Return the path of the next request, or None if none comes within the time."""
        try:
            return self._requests.get(timeout=seconds)
        except queue.Empty:
            return None

    def count(self, requests: int) -> Counter[str | None]:
        """Wait for so many requests, and return how often each path is among them."""
        return Counter(self.next() for _ in range(requests))

    def hold(self) -> None:
        """Hold events back from now on."""
        self._flows.clear()

    def held(self, seconds: float) -> bool:
        """Wait until an event is held back."""
        return self._held.wait(seconds)

    def release(self) -> None:
        self._flows.set()

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                theirs = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                theirs.connect(str(self._target))
                self._sockets += [ours, theirs]
                self._start(self._serve, ours, theirs)

    def _serve(self, client: socket.socket, daemon: socket.socket) -> None:
        """Pass on one request, which has no body, and its answer."""
        with suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                data = client.recv(65_536)
                if not data:
                    return
                head += data
            path = head.split()[1].decode()
            self._requests.put(path)
            daemon.sendall(head)
            while data := daemon.recv(65_536):
                if path == _EVENTS and not self._flows.is_set():
                    self._held.set()
                    self._flows.wait()
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)
