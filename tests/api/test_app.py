"""The routes, in process: what cannot be brought about from outside."""

import json
import logging
from pathlib import Path

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api import status
from rookery.system import log
from tests.support.http.listener import request, serving
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

SECRET = "rk_a-token-that-nobody-may-see"


@requirement("house.log.format")
@pytest.mark.parametrize("handled", [True, False], ids=["in a route", "in the app itself"])
async def test_a20_a_crash_tells_the_client_nothing_and_the_log_no_secret(
    state: Path, monkeypatch: pytest.MonkeyPatch, handled: bool
) -> None:
    monkeypatch.setattr(log, "REDACTOR", log.Redactor())
    log.REDACTOR.add(SECRET)

    async def crash(_: Request) -> Response:
        raise RuntimeError(f"cannot use {SECRET}")

    async def crashing_app(scope: object, receive: object, send: object) -> None:
        raise RuntimeError(f"cannot use {SECRET}")

    handler = log.PersistentFileHandler(state / "log", 10_000, 2)
    handler.setFormatter(log.JsonFormatter())
    logging.getLogger().addHandler(handler)
    try:
        async with serving(Starlette(routes=[Route("/", crash)]) if handled else crashing_app) as site:
            client = await site.client()
            await client.send(request("GET", "/", "Connection: close"))
            answer = await client.rest()
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert SECRET.encode() not in answer
    written = (state / "log").read_text()
    assert SECRET not in written
    assert "cannot use [secret]" in written


def fields(kind: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)}


@requirement("house.status.shape")
async def test_the_shape_of_status_has_every_field_that_programs_rely_on() -> None:
    assert fields(status.StatusReport) == {"daemon", "projects", "workspaces", "servers"}
    assert fields(status.DaemonStatus) >= {"pid", "url", "mcp_url", "uptime_s", "version"}
    assert fields(status.Project) >= {"id", "name", "path"}
    assert fields(status.WorkspaceReport) >= {
        *("project", "name", "path", "branch", "main", "state", "status", "agent", "mcp"),
    }
    assert fields(status.WorkspaceStatus) >= {"isDirty", "unmergedCommits", "agent"}
    assert json.loads(msgspec.json.encode(status.AgentStatus())) == {
        "type": "none",
        "counts": {"idle": 0, "busy": 0, "total": 0},
    }
    assert fields(status.AgentInfo) >= {"state", "port", "pid", "error"}
    assert fields(status.EndpointStatus) >= {
        "server_running",
        "port",
        "url",
        "connected_clients",
        "tools",
        "last_error",
    }
    assert fields(status.EndpointTool) >= {"name", "description", "parameters"}
    assert fields(status.ServerRecord) >= {
        *("name", "workspace", "status", "error", "tools", "source", "shadowed", "scope", "era"),
    }
