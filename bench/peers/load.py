"""`load.py PORT TOKEN CLIENTS ERA [WHAT [PATH]]`: the same cheap load for every server, in a process of its own.

ERA is the revision to speak. WHAT is the tool to call, by default `echo`; or a tool with its arguments and a text that
the response must contain, as JSON: `{"name", "arguments", "expected"}`; or `tools/list`; or `initialize` for handshakes
only. The clients connect and do the handshake once. Then each line of standard input is a number of calls to make
(`600`), or of seconds to make calls for (`2.5s`), and each line of output is a report as JSON, with the durations or
the error. Every response is checked. Ends at the end of standard input.
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
# All ids have the same length, so that requests differ in nothing else.
_FIRST_ID = 10_000_000
_ID = b"%d" % _FIRST_ID
_READ = 65_536
_SHOWN = 400
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_SESSION = re.compile(rb"\r\nmcp-session-id: *([^\r]+)", re.IGNORECASE)


class Client:
    """One connection, with at most one request in progress."""

    def __init__(self, port: int, token: str, era: str, what: str, path: str) -> None:
        self.sent = 0.0
        self._wanted = b""
        self._got = b""
        self._missing = 0
        self._port, self._token, self._path = port, token, path
        self.line = self._connect()
        self._before, self._after = self._template(era, what)

    def _connect(self) -> socket.socket:
        line = socket.create_connection(("127.0.0.1", self._port), timeout=_ROUND_SECONDS)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return line

    def connect_again(self) -> None:
        """Connect again if the server has closed the connection, as some do after a few idle seconds."""
        if select.select([self.line], [], [], 0)[0]:
            self.line.close()
            self.line = self._connect()

    def _template(self, era: str, what: str) -> tuple[bytes, bytes]:
        """Return the bytes of a request before its id and after it."""
        hello = {"protocolVersion": _HANDSHAKE, "clientInfo": _CLIENT, "capabilities": {}}
        names: dict[str, str] = {}
        params: dict[str, Any]
        if what == "initialize":
            method, params, self._expected = what, hello, b'"protocolVersion"'
        elif what == "tools/list":
            method, params, self._expected = what, {}, b'"tools":['
        else:
            tool: dict[str, Any] = {"name": what, "arguments": {"text": _TEXT}, "expected": _TEXT}
            tool |= json.loads(what) if what.startswith("{") else {}
            self._expected = str(tool.pop("expected")).encode()
            method, params, names = "tools/call", tool, {"mcp-name": tool["name"]}
        if era == _MODERN:
            about = {"protocolVersion": _MODERN, "clientInfo": _CLIENT, "clientCapabilities": {}}
            params["_meta"] = {_META + key: value for key, value in about.items()}
            more = {"mcp-protocol-version": _MODERN, "mcp-method": method, **names}
        elif what == "initialize":
            more = {}
        else:
            more = self._say_hello(self._request({"id": _FIRST_ID, "method": "initialize", "params": hello}, {}))
        request = self._request({"id": _FIRST_ID, "method": method, "params": params}, more)
        before, _, after = request.rpartition(_ID)
        return before, after

    def _say_hello(self, request: bytes) -> dict[str, str]:
        self.line.sendall(request)
        named = _SESSION.search(self._whole())
        session = {"mcp-protocol-version": _HANDSHAKE}
        if named is not None:
            session["mcp-session-id"] = named[1].decode()
        self.line.sendall(self._request({"method": "notifications/initialized"}, session))
        self._whole()
        return session

    def _request(self, message: dict[str, Any], more: dict[str, str]) -> bytes:
        body = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()
        headers = {
            "host": f"127.0.0.1:{self._port}",
            "authorization": f"Bearer {self._token}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "user-agent": "load/1",
            **more,
            "content-length": str(len(body)),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {self._path} HTTP/1.1\r\n{lines}\r\n".encode() + body

    def call(self, number: int) -> None:
        id_ = b"%d" % (_FIRST_ID + number)
        self._wanted = b'"id":' + id_
        self.sent = time.perf_counter()
        self.line.sendall(self._before + id_ + self._after)

    def poll_response(self) -> bytes | None:
        """Return the response once it is complete, after checking it; None before that."""
        response = self._read()
        if response is None:
            return None
        if not response.startswith(b"HTTP/1.1 200 ") or self._wanted not in response or self._expected not in response:
            raise RuntimeError(f"a wrong response: {response[:_SHOWN]!r}")
        return response

    def _whole(self) -> bytes:
        while (response := self._read()) is None:
            pass
        if not response.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"refused: {response[:_SHOWN]!r}")
        return response

    def _read(self) -> bytes | None:
        data = self.line.recv(max(_READ, self._missing))
        if not data:
            raise RuntimeError(f"the server closed the connection after {self._got[:_SHOWN]!r}")
        self._got = got = self._got + data
        head = got.find(b"\r\n\r\n")
        if head < 0:
            return None
        length = _LENGTH.search(got, 0, head)
        if length is not None:
            self._missing = head + 4 + int(length[1]) - len(got)
            if self._missing > 0:
                return None
        elif _CHUNKED.search(got, 0, head):
            if not got.endswith(_LAST_CHUNK):
                return None
            got = got[: head + 4] + _joined(got, head + 4)
        elif not got.startswith((b"HTTP/1.1 202 ", b"HTTP/1.1 204 ")):
            raise RuntimeError(f"no Content-Length: {got[:_SHOWN]!r}")
        self._got = b""
        return got


def _joined(got: bytes, at: int) -> bytes:
    """Return the body whose chunks begin at this position."""
    chunks: list[bytes] = []
    while True:
        line = got.index(b"\r\n", at)
        size = int(got[at:line], 16)
        if not size:
            return b"".join(chunks)
        chunks.append(got[line + 2 : line + 2 + size])
        at = line + 4 + size


def run(clients: list[Client], calls: int, seconds: float) -> dict[str, Any]:
    """Make calls until there were enough or time is up; each client calls again as soon as it has its response."""
    poll = select.poll()
    for client in clients:
        client.connect_again()
    by_file = {client.line.fileno(): client for client in clients}
    for file in by_file:
        poll.register(file, select.POLLIN)
    took: dict[Client, list[float]] = {client: [] for client in clients}
    response = b""
    begun = done = 0
    began = time.perf_counter()
    for client in clients[:calls]:
        client.call(begun)
        begun += 1
    while done < begun:
        ready = poll.poll(_ROUND_SECONDS * 1000)
        now = time.perf_counter() - began
        if not ready or now > seconds + _ROUND_SECONDS:
            raise TimeoutError(f"{done} of {begun} responses in {now:.1f} seconds")
        for file, _ in ready:
            client = by_file[file]
            got = client.poll_response()
            if got is None:
                continue
            now = time.perf_counter()
            took[client].append(now - client.sent)
            done += 1
            if b'"id":' + _ID in got:
                response = got
            if begun < calls and now - began < seconds:
                client.call(begun)
                begun += 1
    whole = time.perf_counter() - began
    body = response.partition(b"\r\n\r\n")[2].decode()
    each = sorted(median(times) for times in took.values() if times)
    p50 = median(time for times in took.values() for time in times)
    return {"calls": begun, "seconds": whole, "p50": p50, "fastest": each[0], "slowest": each[-1], "answer": body}


def main(port: str, token: str, count: str, era: str, what: str = "echo", path: str = "/mcp") -> None:
    clients = [Client(int(port), token, era, what, path) for _ in range(int(count))]
    _print_json({})
    for line in sys.stdin:
        number, timed, _ = line.partition("s")
        calls, seconds = (sys.maxsize, float(number)) if timed else (int(number), _ROUND_SECONDS)
        _print_json(run(clients, calls, seconds))


def _print_json(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (RuntimeError, OSError) as error:
        _print_json({"error": str(error)})
        sys.exit(1)
