"""The files of a workspace through the daemon's face: a real client at the workspace's own endpoint."""

from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from rookery.system.ids import project_id
from tests.support.callers import ERAS, failure, words as text_of
from tests.support.faces import WAYS, a_face
from tests.support.gateway import a_gateway
from tests.support.requirements import requirement
from tests.support.workspaces import git, make_repository

pytestmark = pytest.mark.anyio


def words(found: CallToolResult) -> list[str]:
    return [one.text for one in found.content if isinstance(one, TextContent)]


@requirement("files.read.path", "files.list.path")
@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_files_are_read_and_listed_where_the_client_is(way: str, mode: str) -> None:
    async with a_face(way, mode) as face:
        (face.path / "sub").mkdir()
        (face.path / "sub" / "a.txt").write_text("in the workspace\n")
        assert not (face.app / "sub").exists()
        assert words(await face.client.call_tool("read_file", {"path": "sub/a.txt"})) == ["in the workspace\n"]
        told = await face.tell("list_directory", path="sub")
        assert told["entries"] == [{"path": "sub/a.txt", "type": "file", "size": 17, "denied": ""}]
