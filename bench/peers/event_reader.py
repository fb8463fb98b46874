"""Read OpenCode's events, and print the time of the first match of each text that fits a pattern.

`python event_reader.py PORT PATH PATTERN`, with AUTHORIZATION in its environment; a line is `<text> <monotonic ns>`.
"""

import os
import re
import socket
import sys
import time


def main(port: int, path: str, pattern: str) -> None:
    authorization = os.environ["AUTHORIZATION"]
    expression, seen, rest = re.compile(pattern.encode()), set[bytes](), b""
    head = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: {authorization}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(head.encode())
        while data := line.recv(1 << 20):
            now = time.monotonic_ns()
            rest = rest[-200:] + data
            if b"server.connected" in data:
                print("connected", now, flush=True)
            for match in expression.findall(rest):
                if match not in seen:
                    seen.add(match)
                    print(match.decode(), now, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:4])
