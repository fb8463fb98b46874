"""A relay that adds a token to each request, for a client that cannot send one."""

import re
import socket
import socketserver
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

_HEAD = 65_536
_CONNECTION = re.compile(rb"\r\nconnection:[^\r]*", re.IGNORECASE)


@contextmanager
def with_token(url: str, token: str) -> Generator[str]:
    """Yield the address of a relay to `url`."""
    there = urlsplit(url)
    assert there.port is not None
    port = there.port

    class Relay(socketserver.BaseRequestHandler):
        """Relay one request on each connection."""

        def handle(self) -> None:
            client: socket.socket = self.request
            head = b""
            while b"\r\n\r\n" not in head and len(head) < _HEAD and (data := client.recv(_HEAD)):
                head += data
            lines, _, rest = head.partition(b"\r\n\r\n")
            own: int = client.getsockname()[1]
            # Host and Origin are judged by the port: what was meant for the relay is meant for what is behind it.
            lines = _CONNECTION.sub(b"", lines).replace(b":%d" % own, b":%d" % port)
            lines += b"\r\nConnection: close\r\nAuthorization: Bearer %b" % token.encode()
            with socket.create_connection(("127.0.0.1", port)) as daemon:
                daemon.sendall(lines + b"\r\n\r\n" + rest)
                threading.Thread(target=_pass_on, args=(client, daemon), daemon=True).start()
                _pass_on(daemon, client)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Relay) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}{there.path}"
        finally:
            server.shutdown()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    """Copy bytes until one side has ended, then end the other."""
    with suppress(OSError):
        while data := one.recv(_HEAD):
            other.sendall(data)
    for end in (one, other):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
