"""`load.py PORT TOKEN CLIENTS KIND`: the same cheap load for every server, in a process of its own.

KIND is the revision in which to call the echo tool, or `initialize` for nothing but handshakes. The clients connect
and say hello once; then each line of standard input is a number of calls to make, and each line of output tells, as
JSON, how long they took. Every answer is checked. Ends when standard input does.
"""

import json
import re
import select
import socket
import sys
import time
from statistics import median
from typing import Any

_HANDSHAKE = "2025-11-25"
_MODERN = "2026-07-28"
_META = "io.modelcontextprotocol/"
_CLIENT = {"name": "load", "version": "1"}
_TEXT = "The quick brown fox jumps over the lazy dog."
_ROUND_SECONDS = 60.0
# Ids all have the same length, so that only they differ from one request to the next.
_FIRST_ID = 10_000_000
_ID = b"%d" % _FIRST_ID
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SESSION = re.compile(rb"\r\nmcp-session-id: *([^\r]+)", re.IGNORECASE)


class Client:
    """One connection, with at most one request under way."""

    def __init__(self, port: int, token: str, kind: str) -> None:
        self.line = socket.create_connection(("127.0.0.1", port), timeout=_ROUND_SECONDS)
        self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent = 0.0
        self._wanted = b""
        self._got = b""
        self._address = f"127.0.0.1:{port}", token
        self._before, self._after = self._template(kind)

    def _template(self, kind: str) -> tuple[bytes, bytes]:
        """The bytes of a request before its id and after it."""
        params: dict[str, Any] = {"name": "echo", "arguments": {"text": _TEXT}}
        if kind == _MODERN:
            about = {"protocolVersion": _MODERN, "clientInfo": _CLIENT, "clientCapabilities": {}}
            params["_meta"] = {_META + key: value for key, value in about.items()}
            names = {"mcp-protocol-version": _MODERN, "mcp-method": "tools/call", "mcp-name": "echo"}
            request = self._request({"id": _FIRST_ID, "method": "tools/call", "params": params}, names)
            self._expected = _TEXT.encode()
        else:
            hello = {"protocolVersion": _HANDSHAKE, "clientInfo": _CLIENT, "capabilities": {}}
            request = self._request({"id": _FIRST_ID, "method": "initialize", "params": hello}, {})
            self._expected = b'"protocolVersion"'
            if kind != "initialize":
                session = self._say_hello(request)
                request = self._request({"id": _FIRST_ID, "method": "tools/call", "params": params}, session)
                self._expected = _TEXT.encode()
        before, _, after = request.rpartition(_ID)
        return before, after

    def _say_hello(self, request: bytes) -> dict[str, str]:
        self.line.sendall(request)
        named = _SESSION.search(self._whole())
        assert named is not None
        session = {"mcp-protocol-version": _HANDSHAKE, "mcp-session-id": named[1].decode()}
        self.line.sendall(self._request({"method": "notifications/initialized"}, session))
        self._whole()
        return session

    def _request(self, message: dict[str, Any], more: dict[str, str]) -> bytes:
        host, token = self._address
        body = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()
        headers = {
            "host": host,
            "authorization": f"Bearer {token}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "user-agent": "load/1",
            **more,
            "content-length": str(len(body)),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body

    def call(self, number: int) -> None:
        id_ = b"%d" % (_FIRST_ID + number)
        self._wanted = b'"id":' + id_
        self.sent = time.perf_counter()
        self.line.sendall(self._before + id_ + self._after)

    def taken(self) -> bytes | None:
        """The answer once it is whole, and checked to be the right one."""
        answer = self._read()
        if answer is None:
            return None
        if not answer.startswith(b"HTTP/1.1 200 ") or self._wanted not in answer or self._expected not in answer:
            raise RuntimeError(f"a wrong answer: {answer!r}")
        return answer

    def _whole(self) -> bytes:
        while (answer := self._read()) is None:
            pass
        if not answer.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"refused: {answer!r}")
        return answer

    def _read(self) -> bytes | None:
        data = self.line.recv(65_536)
        if not data:
            raise RuntimeError(f"the server hung up after {self._got!r}")
        self._got = got = self._got + data
        head = got.find(b"\r\n\r\n")
        if head < 0:
            return None
        length = _LENGTH.search(got, 0, head)
        if length is None and not got.startswith((b"HTTP/1.1 202 ", b"HTTP/1.1 204 ")):
            raise RuntimeError(f"no length: {got!r}")
        if len(got) < head + 4 + (int(length[1]) if length is not None else 0):
            return None
        self._got = b""
        return got


def run(clients: list[Client], calls: int) -> dict[str, Any]:
    """Make so many calls, each client its next one as soon as it has its answer."""
    poll = select.poll()
    by_file = {client.line.fileno(): client for client in clients}
    for file in by_file:
        poll.register(file, select.POLLIN)
    took: list[float] = []
    answer = b""
    begun = 0
    began = time.perf_counter()
    for client in clients[:calls]:
        client.call(begun)
        begun += 1
    while len(took) < calls:
        ready = poll.poll(_ROUND_SECONDS * 1000)
        if not ready or time.perf_counter() - began > _ROUND_SECONDS:
            raise TimeoutError(f"{len(took)} of {calls} answers in {_ROUND_SECONDS} seconds")
        for file, _ in ready:
            client = by_file[file]
            got = client.taken()
            if got is None:
                continue
            took.append(time.perf_counter() - client.sent)
            if b'"id":' + _ID in got:
                answer = got
            if begun < calls:
                client.call(begun)
                begun += 1
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "p50": median(took), "answer": answer.partition(b"\r\n\r\n")[2].decode()}


def main(port: int, token: str, count: int, kind: str) -> None:
    clients = [Client(port, token, kind) for _ in range(count)]
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(run(clients, int(line))), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
