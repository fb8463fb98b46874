"""What a sign-in costs those who call other servers meanwhile."""

import contextlib
import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

from .gateways import Gateway, echo, rookery
from .harness import Bar, user_environment
from .loads import MODERN
from .servers import Server, running

_ISSUER = [sys.executable, "-P", str(Path(__file__).parent / "peers" / "issuer.py"), "{port}"]
_ROUNDS = 15
_WARM = 500
_SECONDS = 60.0


def bars() -> Iterable[Bar]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        issuer = Server(_ISSUER, "/", home, user_environment(home))
        with running(issuer) as far:
            upstreams = {"echo": echo("stdio", "1"), "far": f"http://127.0.0.1:{far.port}/mcp"}
            with rookery(home, upstreams) as gateway, _line(gateway) as line:
                calls = _Calls(line, gateway)
                calls.many(_WARM)
                yield Bar("signin.p99", _ratio(gateway, calls), "<=", 1.5)


def _ratio(gateway: Gateway, calls: "_Calls") -> float:
    """By turns: calls while somebody signs in, and as many while nobody does; the first round warms up."""
    ratios: list[float] = []
    for _ in range(1 + _ROUNDS):
        signing = threading.Thread(target=_sign_in, args=(gateway,))
        signing.start()
        busy = calls.until(lambda done=signing: not done.is_alive())
        _rest(gateway, "POST", "/api/mcp/far/logout")
        quiet = calls.many(len(busy))
        ratios.append(_p99(busy) / _p99(quiet))
        told = f"{_p99(busy) * 1000:.2f} ms of {len(busy)} calls, {_p99(quiet) * 1000:.2f} ms without"
        print(f"signin.p99: {told}", flush=True)
    return median(ratios[1:])


class _Calls:
    """One client that calls without a pause, over one connection."""

    def __init__(self, line: http.client.HTTPConnection, gateway: Gateway) -> None:
        self._line, self._gateway = line, gateway
        self.took: list[float] = []
        about = {"protocolVersion": MODERN, "clientInfo": {"name": "bench", "version": "1"}, "clientCapabilities": {}}
        meta = {f"io.modelcontextprotocol/{key}": value for key, value in about.items()}
        params = {"name": "echo", "arguments": {"text": "hello"}, "_meta": meta}
        self._body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        self._headers = {
            "authorization": f"Bearer {gateway.token}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": MODERN,
            "mcp-method": "tools/call",
            "mcp-name": "echo",
        }

    def many(self, count: int) -> list[float]:
        return self.until(lambda: len(self.took) >= count)

    def until(self, done: Callable[[], bool]) -> list[float]:
        """How long each call took."""
        self.took = []
        while not done():
            began = time.perf_counter()
            self._line.request("POST", self._gateway.one, self._body, self._headers)
            answer = self._line.getresponse()
            body = answer.read()
            self.took.append(time.perf_counter() - began)
            if answer.status != 200 or b'"result"' not in body:
                raise RuntimeError(f"{answer.status} {body[:200]!r}")
        return self.took


def _sign_in(gateway: Gateway) -> None:
    asked = _rest(gateway, "POST", "/api/mcp/far/login", {})
    back = _browse(_browse(asked["url"]))
    assert back == "", back
    record = _rest(gateway, "GET", "/api/mcp/far/login")
    assert record["status"] == "connected", record


def _browse(url: str) -> str:
    """Where an address leads; nowhere where it ends."""
    parts = urlsplit(url)
    line = http.client.HTTPConnection(parts.netloc, timeout=_SECONDS)
    with contextlib.closing(line):
        line.request("GET", parts._replace(scheme="", netloc="").geturl())
        answer = line.getresponse()
        answer.read()
        return answer.getheader("location") or ""


def _rest(gateway: Gateway, method: str, path: str, body: Any = None) -> Any:
    with _line(gateway) as line:
        headers = {"authorization": f"Bearer {gateway.token}", "content-type": "application/json"}
        line.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = line.getresponse()
        told = json.loads(answer.read())
    if answer.status >= 400:
        raise RuntimeError(f"{method} {path}: {answer.status} {told}")
    return told


@contextlib.contextmanager
def _line(gateway: Gateway) -> Generator[http.client.HTTPConnection]:
    line = http.client.HTTPConnection("127.0.0.1", gateway.running.port, timeout=_SECONDS)
    with contextlib.closing(line):
        yield line


def _p99(took: list[float]) -> float:
    return quantiles(took, n=100)[98]
