"""The hub: what a search over tools saves, how often it finds the right tool, and what a sign-in costs other calls."""

import contextlib
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from . import hub_signin
from .gateways import Gateway, rookery
from .harness import Bar
from .loads import MODERN

_SEARCH = Path(__file__).parent / "search"
_LIST_SERVER = [sys.executable, "-P", str(Path(__file__).parent / "peers" / "list_server.py")]
_SERVERS, _EACH = 10, 100
_FIRST = 5
_SECONDS = 120.0

Tools = list[dict[str, Any]]


def run() -> Iterable[Bar]:
    with tempfile.TemporaryDirectory() as home:
        yield Bar("search.tokens", _tokens(Path(home)), "<=", 0.02)
        yield Bar("search.found", _found(Path(home)), ">=", 0.90)
    yield from hub_signin.bars()


def _tokens(home: Path) -> float:
    """Return the size in bytes of the tool list in search mode, relative to that of the full list."""
    real = [{**tool, "name": f"{server}_{tool['name']}"} for server, tools in _real().items() for tool in tools]
    tools_by_server = {
        f"s{number}": [real[(number * _EACH + index) % len(real)] for index in range(_EACH)]
        for number in range(_SERVERS)
    }
    with _behind(home, tools_by_server) as gateway:
        # Neither list has Rookery's own tools.
        listed = _ask(gateway, "/mcp?toolsets=", "tools/list")["tools"]
        searched = _ask(gateway, "/mcp?mode=search&toolsets=", "tools/list")["tools"]
        assert len(listed) == _SERVERS * _EACH, f"{len(listed)} tools are listed"
        assert len(searched) == 2, f"{len(searched)} tools are listed in search mode"
        answers: list[int] = []
        took: list[float] = []
        for question in _questions("queries.json"):
            began = time.perf_counter()
            answers.append(_size(_find(gateway, question)))
            took.append(time.perf_counter() - began)
    whole, two = _size(listed), _size(searched)
    print(f"search.tokens: about {whole // 4:,} for {len(listed)} tools, {two // 4:,} for find and call", flush=True)
    print(f"search.tokens: about {int(median(answers)) // 4:,} more for what a question finds", flush=True)
    print(f"search.tokens: {median(took) * 1000:.2f} ms a question, {max(took) * 1000:.1f} the first", flush=True)
    return two / whole


def _found(home: Path) -> float:
    """Return the share of questions that find their tool among the first five."""
    with _behind(home, _real()) as gateway:
        shares: dict[str, float] = {}
        for file in ("queries.json", "unseen.json"):
            questions = _questions(file)
            hits = {question: _hit(gateway, question, wanted) for question, wanted in questions.items()}
            shares[file] = sum(hits.values()) / len(hits)
            print(f"search.found: {sum(hits.values())} of {len(hits)} of {file}", flush=True)
            if file == "queries.json":
                print(
                    f"search.found: not {'; not '.join(question for question, hit in hits.items() if not hit)}",
                    flush=True,
                )
    return shares["queries.json"]


def _hit(gateway: Gateway, question: str, wanted: Sequence[str]) -> bool:
    names = [tool["name"] for tool in _find(gateway, question)]
    return any(name.replace("/", gateway.separator) in names for name in wanted)


def _find(gateway: Gateway, question: str) -> Tools:
    params = {"name": "hub_find_tool", "arguments": {"query": question, "limit": _FIRST}}
    return _ask(gateway, "/mcp?mode=search&toolsets=", "tools/call", **params)["structuredContent"]["tools"]


def _real() -> dict[str, Tools]:
    servers = json.loads((_SEARCH / "tools.json").read_text(encoding="utf-8"))
    return {server: server_tools["tools"] for server, server_tools in servers.items()}


def _questions(file: str) -> Mapping[str, Sequence[str]]:
    return json.loads((_SEARCH / file).read_text(encoding="utf-8"))


@contextlib.contextmanager
def _behind(home: Path, tools_by_server: Mapping[str, Tools]) -> Generator[Gateway]:
    """Run Rookery with one server for each list of tools, until all of them are listed."""
    commands: dict[str, list[str]] = {}
    for name, tools in tools_by_server.items():
        file = home / f"{name}.json"
        file.write_text(json.dumps(tools), encoding="utf-8")
        commands[name] = [*_LIST_SERVER, str(file)]
    wanted = sum(map(len, tools_by_server.values()))
    with rookery(home, commands) as gateway:
        ends = time.perf_counter() + _SECONDS
        while len(_ask(gateway, "/mcp?toolsets=", "tools/list")["tools"]) < wanted:
            if time.perf_counter() > ends:
                raise RuntimeError(f"not all {wanted} tools are listed")
        yield gateway


def _ask(gateway: Gateway, path: str, method: str, **params: Any) -> dict[str, Any]:
    about = {"protocolVersion": MODERN, "clientInfo": {"name": "bench", "version": "1"}, "clientCapabilities": {}}
    meta = {f"io.modelcontextprotocol/{key}": value for key, value in about.items()}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}})
    headers = {
        "authorization": f"Bearer {gateway.token}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": MODERN,
        "mcp-method": method,
    } | ({"mcp-name": params["name"]} if "name" in params else {})
    line = http.client.HTTPConnection("127.0.0.1", gateway.running.port, timeout=_SECONDS)
    with contextlib.closing(line):
        line.request("POST", path, body, headers)
        response = line.getresponse()
        body = response.read()
    if response.status != 200:
        raise RuntimeError(f"{method}: {response.status} {body[:200]!r}")
    return json.loads(body)["result"]


def _size(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())
