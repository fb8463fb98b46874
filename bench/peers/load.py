"""`load.py PORT TOKEN CLIENTS ERA [WHAT [PATH]]`: the same cheap load for every server, in a process of its own.

ERA is the revision to speak. WHAT is the tool to call, by default `echo`, or one with its arguments and what must be in
its answer, as JSON: `{"name", "arguments", "expected"}`; or `tools/list`; or `initialize` for nothing but handshakes.
The clients connect and say hello once; then each line of standard input is a number of calls to make (`600`) or of
seconds to make calls for (`2.5s`), and each line of output tells, as JSON, how long they took, or what was wrong. Every
answer is checked. Ends when standard input does.
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
_READ = 65_536
_SHOWN = 400
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_SESSION = re.compile(rb"\r\nmcp-session-id: *([^\r]+)", re.IGNORECASE)


class Client:
    """One connection, with at most one request under way."""

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
        """Some servers hang up on whoever is silent for a few seconds, as one is while the others have their turn."""
        if select.select([self.line], [], [], 0)[0]:
            self.line.close()
            self.line = self._connect()

    def _template(self, era: str, what: str) -> tuple[bytes, bytes]:
        """The bytes of a request before its id and after it."""
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

    def taken(self) -> bytes | None:
        """The answer once it is whole, and checked to be the right one."""
        answer = self._read()
        if answer is None:
            return None
        if not answer.startswith(b"HTTP/1.1 200 ") or self._wanted not in answer or self._expected not in answer:
            raise RuntimeError(f"a wrong answer: {answer[:_SHOWN]!r}")
        return answer

    def _whole(self) -> bytes:
        while (answer := self._read()) is None:
            pass
        if not answer.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"refused: {answer[:_SHOWN]!r}")
        return answer

    def _read(self) -> bytes | None:
        data = self.line.recv(max(_READ, self._missing))
        if not data:
            raise RuntimeError(f"the server hung up after {self._got[:_SHOWN]!r}")
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
            raise RuntimeError(f"no length: {got[:_SHOWN]!r}")
        self._got = b""
        return got


def _joined(got: bytes, at: int) -> bytes:
    """The body whose chunks begin there."""
    chunks: list[bytes] = []
    while True:
        line = got.index(b"\r\n", at)
        size = int(got[at:line], 16)
        if not size:
            return b"".join(chunks)
        chunks.append(got[line + 2 : line + 2 + size])
        at = line + 4 + size


def run(clients: list[Client], calls: int, seconds: float) -> dict[str, Any]:
    """Make calls, each client its next one as soon as it has its answer, until there were enough or time is up."""
    poll = select.poll()
    for client in clients:
        client.connect_again()
    by_file = {client.line.fileno(): client for client in clients}
    for file in by_file:
        poll.register(file, select.POLLIN)
    took: dict[Client, list[float]] = {client: [] for client in clients}
    answer = b""
    begun = done = 0
    began = time.perf_counter()
    for client in clients[:calls]:
        client.call(begun)
        begun += 1
    while done < begun:
        ready = poll.poll(_ROUND_SECONDS * 1000)
        now = time.perf_counter() - began
        if not ready or now > seconds + _ROUND_SECONDS:
            raise TimeoutError(f"{done} of {begun} answers in {now:.1f} seconds")
        for file, _ in ready:
            client = by_file[file]
            got = client.taken()
            if got is None:
                continue
            now = time.perf_counter()
            took[client].append(now - client.sent)
            done += 1
            if b'"id":' + _ID in got:
                answer = got
            if begun < calls and now - began < seconds:
                client.call(begun)
                begun += 1
    whole = time.perf_counter() - began
    told = answer.partition(b"\r\n\r\n")[2].decode()
    each = sorted(median(times) for times in took.values() if times)
    p50 = median(time for times in took.values() for time in times)
    return {"calls": begun, "seconds": whole, "p50": p50, "fastest": each[0], "slowest": each[-1], "answer": told}


def main(port: str, token: str, count: str, era: str, what: str = "echo", path: str = "/mcp") -> None:
    clients = [Client(int(port), token, era, what, path) for _ in range(int(count))]
    _tell({})
    for line in sys.stdin:
        number, timed, _ = line.partition("s")
        calls, seconds = (sys.maxsize, float(number)) if timed else (int(number), _ROUND_SECONDS)
        _tell(run(clients, calls, seconds))


def _tell(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (RuntimeError, OSError) as error:
        _tell({"error": str(error)})
        sys.exit(1)
