"""The latency of calls to other servers while a user signs in."""

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
                calls.run(_WARM)
                yield Bar("signin.p99", _ratio(gateway, calls), "<=", 1.5)


def _ratio(gateway: Gateway, calls: "_Calls") -> float:
    """Measure calls during a sign-in, and as many without one, by turns. The first round warms up."""
    ratios: list[float] = []
    for _ in range(1 + _ROUNDS):
        signing = threading.Thread(target=_sign_in, args=(gateway,))
        signing.start()
        busy = calls.until(lambda done=signing: not done.is_alive())
        _rest(gateway, "POST", "/api/mcp/far/logout")
        quiet = calls.run(len(busy))
        ratios.append(_p99(busy) / _p99(quiet))
        message = f"{_p99(busy) * 1000:.2f} ms of {len(busy)} calls, {_p99(quiet) * 1000:.2f} ms without"
        print(f"signin.p99: {message}", flush=True)
    return median(ratios[1:])


class _Calls:
    """A client that calls without a pause, over one connection."""

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

    def run(self, count: int) -> list[float]:
        return self.until(lambda: len(self.took) >= count)

    def until(self, done: Callable[[], bool]) -> list[float]:
        """Call until `done()`, and return the duration of each call."""
        self.took = []
        while not done():
            began = time.perf_counter()
            self._line.request("POST", self._gateway.single_server, self._body, self._headers)
            response = self._line.getresponse()
            body = response.read()
            self.took.append(time.perf_counter() - began)
            if response.status != 200 or b'"result"' not in body:
                raise RuntimeError(f"{response.status} {body[:200]!r}")
        return self.took


def _sign_in(gateway: Gateway) -> None:
    login = _rest(gateway, "POST", "/api/mcp/far/login", {})
    back = _browse(_browse(login["url"]))
    assert back == "", back
    record = _rest(gateway, "GET", "/api/mcp/far/login")
    assert record["status"] == "connected", record


def _browse(url: str) -> str:
    """Return the address that a URL redirects to; "" if it does not redirect."""
    parts = urlsplit(url)
    line = http.client.HTTPConnection(parts.netloc, timeout=_SECONDS)
    with contextlib.closing(line):
        line.request("GET", parts._replace(scheme="", netloc="").geturl())
        response = line.getresponse()
        response.read()
        return response.getheader("location") or ""


def _rest(gateway: Gateway, method: str, path: str, body: Any = None) -> Any:
    with _line(gateway) as line:
        headers = {"authorization": f"Bearer {gateway.token}", "content-type": "application/json"}
        line.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = line.getresponse()
        message = json.loads(response.read())
    if response.status >= 400:
        raise RuntimeError(f"{method} {path}: {response.status} {message}")
    return message


@contextlib.contextmanager
def _line(gateway: Gateway) -> Generator[http.client.HTTPConnection]:
    line = http.client.HTTPConnection("127.0.0.1", gateway.running.port, timeout=_SECONDS)
    with contextlib.closing(line):
        yield line


def _p99(took: list[float]) -> float:
    return quantiles(took, n=100)[98]
