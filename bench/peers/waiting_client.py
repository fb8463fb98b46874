"""A client that waits for messages of many sessions at once, and prints when each response arrived.

`python waiting_client.py PORT`, with AUTHORIZATION in its environment. A line on stdin is `<session> <pattern>`, one on
stdout `<pattern> <monotonic ns>`.
"""

import json
import os
import selectors
import socket
import sys
import time

_MS = 300_000


def main(port: int) -> None:
    lines: dict[str, socket.socket] = {}
    patterns: dict[int, str] = {}
    received: dict[int, bytes] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(0, selectors.EVENT_READ)
        print("connected", time.monotonic_ns(), flush=True)
        rest = b""
        while True:
            for key, _ in ready.select():
                if key.fd == 0:
                    data = os.read(0, 1 << 16)
                    if not data:
                        return
                    *whole, rest = (rest + data).split(b"\n")
                    for session, pattern in (line.decode().split() for line in whole):
                        if session not in lines:
                            lines[session] = socket.create_connection(("127.0.0.1", port))
                            ready.register(lines[session], selectors.EVENT_READ)
                        patterns[lines[session].fileno()] = pattern
                        lines[session].sendall(_request(port, session, pattern))
                    continue
                data = os.read(key.fd, 1 << 20)
                now = time.monotonic_ns()
                received[key.fd] = received.get(key.fd, b"") + data
                if _is_whole(received[key.fd]):
                    response = received.pop(key.fd)
                    if b'"found":true' not in response:
                        raise SystemExit(f"this is not the response for {patterns[key.fd]}: {response!r}")
                    print(patterns[key.fd], now, flush=True)


def _request(port: int, session: str, pattern: str) -> bytes:
    body = json.dumps({"for": "message", "pattern": pattern, "timeout": _MS})
    head = (
        f"POST /api/sessions/{session}/wait HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"authorization: {os.environ['AUTHORIZATION']}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


def _is_whole(response: bytes) -> bool:
    head, end, body = response.lower().partition(b"\r\n\r\n")
    if response and not end:
        return False
    length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
    if not length:
        raise SystemExit(f"this is not a response: {response!r}")
    return len(body) >= int(length)


if __name__ == "__main__":
    main(int(sys.argv[1]))
