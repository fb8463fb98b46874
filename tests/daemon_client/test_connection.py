"""The command line with a daemon that ends in the middle of a response."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.daemon.process import rookery

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
SIZED = HEAD + b"content-length: 2\r\n\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@contextmanager
def daemon_that_sends(response: bytes, path: Path) -> Generator[None]:
    """A listener at the daemon's socket that answers one request and closes."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(60)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(response)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            thread.join(60)


@pytest.mark.parametrize("response", [SIZED + b"[]", CHUNKED + b"1\r\n[\r\n1\r\n]\r\n0\r\n\r\n"])
def test_a_whole_response_is_printed(state: Path, response: bytes) -> None:
    with daemon_that_sends(response, state / "rookery.sock"):
        done = rookery("project", "list", "--json", "--no-start")
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize(
    "response",
    [SIZED + b"[", CHUNKED, CHUNKED + b"2\r\n[", CHUNKED + b"1\r\n[\r\n", CHUNKED + b"2\r\n[]\r\n", CHUNKED + b"1"],
)
def test_a_response_that_breaks_off_is_an_error(state: Path, response: bytes) -> None:
    with daemon_that_sends(response, state / "rookery.sock"):
        done = rookery("project", "list", "--json", "--no-start")
    assert done.returncode == 5 and "daemon-unreachable" in done.stderr, (done.stdout, done.stderr)
