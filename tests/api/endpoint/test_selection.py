"""The view that a request selects, and its scope."""

from pathlib import Path

import pytest
from starlette.types import Scope

from rookery.api.endpoint.selection import HEADER, ViewSelector
from rookery.system.errors import RookeryError
from rookery.wire.http.auth import LOOPBACK, OWNER, Principal
from rookery.wire.http.head import RequestHead
from rookery.workspaces.lookup import LocatedWorkspace
from rookery.workspaces.model import Workspace
from rookery.workspaces.projects import Project
from rookery.workspaces.worktrees import Worktree

pytestmark = pytest.mark.anyio

FOLDER, OWN = Path("/work/one"), Path("/work/app/.git/worktrees/one")
PROJECT = Project("app-1", "app", "/work/app")
FOUND = LocatedWorkspace(Workspace(PROJECT, "one", FOLDER, "one", False, "ready"), Worktree(FOLDER), OWN)
TOOLSETS = frozenset({"project", "workspace", "session", "admin"})


class OneWorkspace:
    def has_token(self, own: Path) -> bool:
        return own == OWN

    async def find(self, project: str, name: str) -> LocatedWorkspace | None:
        return FOUND if (project, name) == (PROJECT.id, "one") else None

    async def find_at(self, path: str) -> LocatedWorkspace | None:
        return FOUND if path == str(FOLDER) else None

    async def explain_missing(self, path: str) -> RookeryError:
        return RookeryError("workspace-not-found", path)

    async def find_by_git_folder(self, own: Path) -> LocatedWorkspace | None:
        return FOUND if own == OWN else None


def request(principal: Principal, *header: str, query: bytes = b"") -> Scope:
    head = RequestHead.from_headers([(HEADER, value.encode()) for value in header])
    return {"state": {"principal": principal}, "query_string": query, "headers": head}


@pytest.mark.parametrize("beside", ["", "/w/app-1/one", "/w/app-1/one/s/server"])
@pytest.mark.parametrize("header", [(), (str(FOLDER),)])
async def test_a_workspace_token_selects_the_view_of_that_workspace_alone(beside: str, header: tuple[str, ...]) -> None:
    chooser = ViewSelector(OneWorkspace(), TOOLSETS, TOOLSETS)
    found = await chooser.choose(request(Principal("workspace", workspace=OWN), *header), beside)
    assert (found.directory, found.scope) == (FOLDER, FOLDER)
    assert (await chooser.choose(request(OWNER, *header), beside)).scope is None


async def test_only_the_owner_gets_the_toolset_admin_and_only_by_naming_it() -> None:
    # Even if the settings were to list it for agents.
    selector = ViewSelector(OneWorkspace(), TOOLSETS, TOOLSETS)

    async def select(principal: Principal, query: bytes, prefix: str = "", *header: str) -> frozenset[str]:
        return (await selector.choose(request(principal, *header, query=query), prefix)).toolsets

    token = Principal("workspace", workspace=OWN)
    for header in ((), (str(FOLDER),)):
        assert await select(OWNER, b"", "", *header) == TOOLSETS - {"admin"}
        assert await select(OWNER, b"mode=search", "", *header) == TOOLSETS - {"admin"}
        assert await select(OWNER, b"toolsets=admin", "", *header) == {"admin"}
        assert await select(OWNER, b"toolsets=admin,workspace", "", *header) == {"admin", "workspace"}
        assert await select(token, b"", "", *header) == TOOLSETS - {"admin"}
        assert await select(token, b"toolsets=admin", "", *header) == set()
    assert await select(LOOPBACK, b"toolsets=admin,workspace", "", str(FOLDER)) == {"workspace"}
    for principal in (OWNER, token, LOOPBACK):
        assert await select(principal, b"toolsets=admin,workspace", "/w/app-1/one") == {"workspace"}
