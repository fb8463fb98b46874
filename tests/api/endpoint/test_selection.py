"""Which view a request chooses, and whose things it shows."""

from pathlib import Path

import pytest
from starlette.types import Scope

from rookery.api.endpoint.selection import HEADER, ViewSelector
from rookery.system.errors import RookeryError
from rookery.wire.http.auth import OWNER, Principal
from rookery.wire.http.head import RequestHead
from rookery.workspaces.lookup import LocatedWorkspace
from rookery.workspaces.model import Workspace
from rookery.workspaces.projects import Project
from rookery.workspaces.worktrees import Worktree

pytestmark = pytest.mark.anyio

FOLDER, OWN = Path("/work/one"), Path("/work/app/.git/worktrees/one")
PROJECT = Project("app-1", "app", "/work/app")
FOUND = LocatedWorkspace(Workspace(PROJECT, "one", FOLDER, "one", False, "ready"), Worktree(FOLDER), OWN)
TOOLSETS = frozenset({"project", "workspace", "session"})


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


def request(principal: Principal, *header: str) -> Scope:
    head = RequestHead.from_headers([(HEADER, value.encode()) for value in header])
    return {"state": {"principal": principal}, "query_string": b"", "headers": head}


@pytest.mark.parametrize("beside", ["", "/w/app-1/one", "/w/app-1/one/s/server"])
@pytest.mark.parametrize("header", [(), (str(FOLDER),)])
async def test_whoever_comes_with_the_token_of_a_workspace_sees_the_things_of_that_one_alone(
    beside: str, header: tuple[str, ...]
) -> None:
    chooser = ViewSelector(OneWorkspace(), TOOLSETS, TOOLSETS)
    found = await chooser.choose(request(Principal("workspace", workspace=OWN), *header), beside)
    assert (found.directory, found.scope) == (FOLDER, FOLDER)
    assert (await chooser.choose(request(OWNER, *header), beside)).scope is None
