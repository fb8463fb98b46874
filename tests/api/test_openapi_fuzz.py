"""Requests that are generated from the OpenAPI document get documented responses, and never fail with 5xx."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon.process import Daemon, rookery, up
from tests.support.http.fuzz import fuzz
from tests.support.requirements import requirement
from tests.support.soak import repetitions, soak
from tests.support.workspaces.service import make_repository

# Operations that are not called, and why.
EXCLUDED: dict[str, str] = {
    "daemon.stop": "it ends the daemon under test",
    "daemon.events": "its response is a stream that never ends",
    "daemon.logs": "its response is a stream that never ends",
}


# Operations that get no name of what the others need, and why.
SPARED = {
    "workspace.delete": "the workspace would be missing for all other operations",
    "project.remove": "the project would be missing for all other operations",
}


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon without agents, with a project and a workspace."""
    app = make_repository(Path.home() / "app")
    running = up("--set", "agents.version=path", env={"PATH": "/usr/bin:/bin"})
    for words in (("project", "add", str(app)), ("ws", "create", "fix", "--no-agent")):
        assert rookery(*words, cwd=app).returncode == 0
    yield running
    assert rookery("down").returncode == 0


def read_document(daemon: Daemon) -> Any:
    response = daemon.http("GET", "/api/openapi.json")
    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    return response.json()


def list_existing_values(daemon: Daemon) -> dict[str, list[str]]:
    """Return names of what exists, by parameters."""
    workspaces = daemon.http("GET", "/api/workspaces").json()
    projects = [workspaces[0]["project"], "app"]
    names = [workspace["name"] for workspace in workspaces]
    paths = [*(workspace["path"] for workspace in workspaces), "README.md", "/", "."]
    return {
        "path.project": projects,
        "path.name": names,
        "query.project": projects,
        "query.workspace": names,
        "query.path": paths,
        "body.project": projects,
        "body.path": paths,
        "body.directory": paths,
        "body.key": ["note", "base"],
    }


@soak
@requirement("ops.openapi.document")
@pytest.mark.timeout(1800)
def test_generated_requests_get_documented_responses_and_no_5xx(daemon: Daemon) -> None:
    document = read_document(daemon)
    ids = {operation["operationId"] for methods in document["paths"].values() for operation in methods.values()}
    assert EXCLUDED.keys() <= ids
    spared = {id_: {"path.project": "nowhere", "path.name": "nowhere"} for id_ in SPARED}
    report = fuzz(
        daemon,
        document,
        examples=repetitions(5, 200),
        excluded=[*EXCLUDED],
        values=list_existing_values(daemon),
        only_values=spared,
    )
    assert len(report.operations) == len(ids - EXCLUDED.keys())
    assert not report.failures
    assert daemon.http("GET", "/api/health").status == 200


# Bodies that are not JSON, or not an object.
MALFORMED_BODIES = (
    *(b"\xff\xfe{}", b"\x00", b'{"', b"{}{}", b"null", b"[]", b"NaN", b'"\\ud800"', b"\xef\xbb\xbf{}", b'{"\xff": 1}'),
    *(b"[" * 100_000, b'{"a":' * 10_000, b"1" * 10_000, b"-" + b"9" * 400 + b"e999"),
)
# Values for a field: numbers out of range, text that is no name and no path, other types, and deep nesting.
HOSTILE_VALUES = (
    *(
        "1" + "0" * 400,
        "-1",
        "0",
        "1e308",
        "-1e308",
        "1.5",
        "true",
        "null",
        "[]",
        "{}",
        '{"": {"": null}}',
        "[" * 900 + "]" * 900,
    ),
    *('""', r'"\u0000"', r'"\ud800"', r'"\u202e\u0007"', '"../../../etc/passwd"', f'"{"x" * 70_000}"'),
)
HOSTILE_SEGMENTS = (
    "%00",
    "%ff",
    "%2e%2e",
    "%",
    "%0d%0a",
    "%25%32%66",
    "%ed%a0%80",
    "..%2f..%2f",
    "x" * 5000,
    "-x",
    "*",
)
HOSTILE_QUERIES = (*HOSTILE_SEGMENTS, "nan", "1e999", "9" * 400, "-1", "null", "", "%5B%5D")


def list_malformed_requests(path: str, operation: Any, schemas: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the body of requests that are malformed, or have one value that is."""
    names: dict[str, list[str]] = {"path": [], "query": [], "header": []}
    for parameter in operation.get("parameters", []):
        names[parameter["in"]].append(parameter["name"])
    plain = dict.fromkeys(names["path"], "x")
    for name in names["path"]:
        for segment in HOSTILE_SEGMENTS:
            yield path.format(**plain | {name: segment}), b""
    target = path.format(**plain)
    for name in names["query"]:
        for value in HOSTILE_QUERIES:
            yield f"{target}?{name}={value}", b""
    if "requestBody" not in operation:
        return
    for body in MALFORMED_BODIES:
        yield target, body
    reference: str = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    schema = schemas[reference.rpartition("/")[2]]
    required = dict.fromkeys(schema.get("required", ()), '"x"')
    for name in [*schema["properties"], "unknown"]:
        for value in HOSTILE_VALUES:
            fields = (f'"{field}": {text}' for field, text in (required | {name: value}).items())
            yield target, f"{{{', '.join(fields)}}}".encode()


@requirement("ops.openapi.document")
@pytest.mark.timeout(600)
def test_a11_a12_malformed_requests_get_documented_responses(daemon: Daemon) -> None:
    document = read_document(daemon)
    wrong: list[str] = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if operation["operationId"] in EXCLUDED:
                continue
            for target, body in list_malformed_requests(path, operation, document["components"]["schemas"]):
                headers = {"Content-Type": "application/json"} if body else {}
                response = daemon.http(method.upper(), target, body or None, headers=headers)
                is_documented = response.status < 500 and str(response.status) in operation["responses"]
                if not is_documented or (response.status >= 400 and "error" not in response.json()):
                    wrong.append(f"{method} {target[:200]} {body[:200]!r}: {response.status} {response.body[:300]!r}")
    assert not wrong, "\n".join(wrong[:20])
    assert daemon.http("GET", "/api/health").status == 200
