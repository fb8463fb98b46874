"""A cached selection is used only as long as the name means the same workspace."""

from pathlib import Path

import pytest

from rookery.api.endpoint.router import RECHECK_SECONDS, CachedRoute, read_link_mark
from rookery.gateway.unavailable import Absence, UnavailableView
from rookery.system.ids import project_id
from rookery.wire.server.endpoint import Endpoint
from tests.support.clock import SetClock
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.mcp.caller import Caller
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = pytest.mark.anyio


async def who(caller: Caller) -> str:
    answer = await caller.call("read_file", {"path": "who"})
    return answer["result"]["content"][0]["text"]


@pytest.fixture
def checks_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.api.endpoint.router.RECHECK_SECONDS", 0.0)


def worktrees(*names: str) -> tuple[Path, list[Path]]:
    """A repository, with worktrees of other hands than ours, which are called by their branches."""
    checkout = make_repository(Path.home() / "app")
    found = [Path.home() / f"folder of {name}" for name in names]
    for name, folder in zip(names, found, strict=True):
        git(checkout, "worktree", "add", "-q", "-b", name, str(folder))
        (folder / "who").write_text(name)
    return checkout, found


async def caller_of(gateway: Gateway, checkout: Path, name: str) -> Caller:
    return await gateway.caller(f"/w/{project_id(checkout.resolve())}/{name}/mcp")


async def test_every_request_after_the_interval_finds_that_the_worktree_is_gone(tmp_path: Path) -> None:
    link = tmp_path / ".git"
    link.write_text("gitdir: elsewhere")
    clock = SetClock()
    clock.now = 1000.0
    endpoint = Endpoint(UnavailableView([], {}, Absence("workspace-not-found", "", "")))
    route = CachedRoute(endpoint, b"/mcp", link, read_link_mark(link), clock=clock)
    assert route.is_valid()
    link.unlink()
    assert route.is_valid()
    clock.now += RECHECK_SECONDS
    assert [route.is_valid(), route.is_valid()] == [False, False]


@requirement("hub.pool.scope")
@pytest.mark.usefixtures("checks_each_request")
async def test_a_name_that_another_workspace_has_by_now_leads_to_that_one() -> None:
    checkout, (first, second) = worktrees("first", "second")
    async with start_gateway({}, checkout) as gateway:
        caller = await caller_of(gateway, checkout, "first")
        assert await who(caller) == "first"
        git(first, "switch", "-q", "-c", "third")
        git(second, "switch", "-q", "first")
        assert await who(caller) == "second"
        assert await who(await caller_of(gateway, checkout, "third")) == "first"


@requirement("hub.pool.scope")
@pytest.mark.usefixtures("checks_each_request")
async def test_a_workspace_is_found_by_the_name_that_it_had_as_long_as_nobody_else_has_it() -> None:
    checkout, (folder,) = worktrees("first")
    async with start_gateway({}, checkout) as gateway:
        caller = await caller_of(gateway, checkout, "first")
        assert await who(caller) == "first"
        git(folder, "switch", "-q", "-c", "third")
        assert [await who(caller) for _ in range(2)] == ["first", "first"]
