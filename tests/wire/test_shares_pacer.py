"""However many requests a workspace sends at once, the owner's waits for one of them, and other workspaces' for few."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from rookery.wire.http.auth import OWNER, Headers, Principal
from rookery.wire.shares import Pacer
from tests.support.http.listener import reply, request, serving
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("house.limits.shares")]

WORKSPACE = Principal("workspace", workspace=Path("/one"))


def judge(method: str, path: str, headers: Headers) -> Principal:
    return WORKSPACE if path == "/workspace" else OWNER


async def test_one_request_of_a_workspace_is_started_in_each_pass_and_tokens_take_turns() -> None:
    pacer, started = Pacer(), list[str]()
    for name in ("a1", "a2", "a3", "b1"):
        pacer.start(name[0], partial(started.append, name))
    for expected in ("a1", "a1 a2", "a1 a2 b1", "a1 a2 b1 a3"):
        assert started == expected.split()
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    pacer.start("a", partial(started.append, "a4"))
    assert started[-1] == "a4"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_request_of_the_owner_overtakes_those_that_a_workspace_sent_before_it(method: str) -> None:
    served: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        served.append(scope["path"])
        await reply(send)

    body = b"{}" if method == "POST" else None
    of_workspace, of_owner = (request(method, path, body=body) for path in ("/workspace", "/owner"))
    async with serving(app, judge_of=lambda port: judge) as site:
        crowd = [await site.client() for _ in range(50)]
        owner = await site.client()
        for client in crowd:
            await client.ask(of_workspace)
        await owner.ask(of_owner)
        served.clear()
        for client in crowd:
            client.writer.write(of_workspace)
        owner.writer.write(of_owner)
        for client in (owner, *crowd):
            assert (await client.answer()).status == 200
        assert served.count("/workspace") == 50
        assert served.index("/owner") < 5
