"""The routes, in process: cases that cannot be produced from outside."""

import logging
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.system import log
from tests.support.http.listener import request, start_listener
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
        async with start_listener(Starlette(routes=[Route("/", crash)]) if handled else crashing_app) as site:
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
