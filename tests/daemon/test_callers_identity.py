"""Workspaces and their tokens at the real daemon, over its port and over restarts."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest

from rookery.system.ids import project_id
from tests.support.callers import ERAS, Caller
from tests.support.house import House, rookery, up
from tests.support.requirements import requirement
from tests.support.ws import app, made, ws

pytestmark = pytest.mark.anyio

HEADER = "X-Workspace-Path"


def two_workspaces(folder: Path) -> tuple[Path, list[Path]]:
    checkout = app(folder)
    paths = [made(name, cwd=checkout) for name in ("left", "right")]
    for path in paths:
        ws("meta", "set", "who", path.name, cwd=path)
    return checkout, paths


def tokens(house: House) -> dict[str, str]:
    """The token of each workspace, by the name of its git folder. Agents will have them in their environment."""
    with closing(sqlite3.connect(house.state / "rookery.db")) as db:
        rows: list[tuple[str, str]] = db.execute("SELECT workspace, token FROM workspace_tokens").fetchall()
    return {Path(workspace).name: token for workspace, token in rows}


async def who(http: aiohttp.ClientSession, house: House, era: str, path: str, headers: dict[str, str]) -> str:
    caller = Caller(http, f"{house.runtime['url']}{path}", era, headers=headers)
    await caller.open()
    found = await caller.call("workspace_get_metadata")
    await caller.close()
    return found["result"]["structuredContent"]["who"]


@requirement("house.auth.loopback")
async def test_with_auth_loopback_the_header_alone_selects_any_workspace(state: Path, tmp_path: Path) -> None:
    house = await asyncio.to_thread(up, "--set", "auth=loopback")
    try:
        checkout, paths = await asyncio.to_thread(two_workspaces, tmp_path / "app")
        async with aiohttp.ClientSession() as http:
            for era in ERAS:
                for path in paths:
                    assert await who(http, house, era, "/mcp", {HEADER: str(path)}) == path.name
                    assert await who(http, house, era, f"/w/{project_id(checkout)}/{path.name}/mcp", {}) == path.name
        for wrong, status in (({"Host": "evil.test"}, 421), ({"Origin": "http://evil.test"}, 403)):
            sent = {HEADER: str(paths[0]), "Content-Type": "application/json", **wrong}
            answer = await asyncio.to_thread(house.http, "POST", "/mcp", b"{}", token=None, headers=sent)
            assert answer.status == status
    finally:
        await asyncio.to_thread(rookery, "down")


@requirement("ws.identity.token")
async def test_a06_a_token_opens_its_workspace_over_restarts_and_is_in_no_log(state: Path, tmp_path: Path) -> None:
    house = await asyncio.to_thread(up)
    try:
        _, paths = await asyncio.to_thread(two_workspaces, tmp_path / "app")
        given = tokens(house)
        assert given.keys() == {"left", "right"} and len(set(given.values())) == 2
        for _ in range(2):
            async with aiohttp.ClientSession() as http:
                for name, token in given.items():
                    headers = {"Authorization": f"Bearer {token}"}
                    assert await who(http, house, ERAS[1], "/mcp", headers) == name
            for method, path, more in (
                ("GET", "/api/status", {}),
                ("GET", "/api/workspaces", {}),
                ("GET", "/sse", {HEADER: str(paths[1])}),
            ):
                answer = await asyncio.to_thread(house.http, method, path, token=given["left"], headers=more)
                assert answer.status == 403, path
            assert (await asyncio.to_thread(rookery, "down")).returncode == 0
            house = await asyncio.to_thread(up)
        assert tokens(house) == given
        assert not [one for one in house.log() if any(token in str(one) for token in given.values())]
    finally:
        await asyncio.to_thread(rookery, "down")
