"""The hub: what a search over tools saves, whether it finds what people mean, and what a sign-in costs the others."""

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
_SHELF = [sys.executable, "-P", str(Path(__file__).parent / "peers" / "shelf.py")]
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
    """The list of a client that searches, in parts of the list of one that does not: bytes by bytes."""
    real = [{**tool, "name": f"{server}_{tool['name']}"} for server, tools in _real().items() for tool in tools]
    shelves = {
        f"s{number}": [real[(number * _EACH + place) % len(real)] for place in range(_EACH)]
        for number in range(_SERVERS)
    }
    with _behind(home, shelves) as gateway:
        # What is Rookery's own is in neither list.
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
    """How many of the questions find the tool that they are about among the first five."""
    with _behind(home, _real()) as gateway:
        shares: dict[str, float] = {}
        for file in ("queries.json", "unseen.json"):
            questions = _questions(file)
            hits = {question: _hit(gateway, question, wanted) for question, wanted in questions.items()}
            shares[file] = sum(hits.values()) / len(hits)
            print(f"search.found: {sum(hits.values())} of {len(hits)} of {file}", flush=True)
            if file == "queries.json":
                print(f"search.found: not {'; not '.join(one for one, hit in hits.items() if not hit)}", flush=True)
    return shares["queries.json"]


def _hit(gateway: Gateway, question: str, wanted: Sequence[str]) -> bool:
    names = [one["name"] for one in _find(gateway, question)]
    return any(one.replace("/", gateway.separator) in names for one in wanted)


def _find(gateway: Gateway, question: str) -> Tools:
    given = {"name": "hub_find_tool", "arguments": {"query": question, "limit": _FIRST}}
    return _ask(gateway, "/mcp?mode=search&toolsets=", "tools/call", **given)["structuredContent"]["tools"]


def _real() -> dict[str, Tools]:
    told = json.loads((_SEARCH / "tools.json").read_text(encoding="utf-8"))
    return {server: one["tools"] for server, one in told.items()}


def _questions(file: str) -> Mapping[str, Sequence[str]]:
    return json.loads((_SEARCH / file).read_text(encoding="utf-8"))


@contextlib.contextmanager
def _behind(home: Path, shelves: Mapping[str, Tools]) -> Generator[Gateway]:
    """Rookery with a server for each shelf, all of them listed once."""
    commands: dict[str, list[str]] = {}
    for name, tools in shelves.items():
        file = home / f"{name}.json"
        file.write_text(json.dumps(tools), encoding="utf-8")
        commands[name] = [*_SHELF, str(file)]
    wanted = sum(map(len, shelves.values()))
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
        answer = response.read()
    if response.status != 200:
        raise RuntimeError(f"{method}: {response.status} {answer[:200]!r}")
    return json.loads(answer)["result"]


def _size(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())
