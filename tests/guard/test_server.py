"""Definitions of MCP servers as subjects of approval."""

from pathlib import Path
from typing import Any

import pytest

from rookery.guard.server import read_definition, server_subject
from rookery.guard.subject import Subject

pytestmark = pytest.mark.anyio

ENTRY: dict[str, Any] = {"command": ["sh", "run.sh", "--deny", "a", "--allow", "b"], "env": {"LEVEL": "1"}}


async def look(root: Path, entry: dict[str, Any] | None = None, **more: Any) -> Subject:
    entry = ENTRY if entry is None else entry
    given: dict[str, Any] = {
        "name": "tools",
        "kind": "local",
        "entry": entry,
        "place": root,
        "checkout": root,
        "command": entry.get("command", ()),
        "source": f"{root}/.mcp.json:3",
    }
    return await server_subject(**given | more)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "run.sh").write_text("echo one")
    return tmp_path


@pytest.mark.parametrize(
    "other",
    [
        ENTRY | {"command": ["sh", "other.sh", "--deny", "a", "--allow", "b"]},
        ENTRY | {"command": ["sh", "run.sh", "--allow", "b", "--deny", "a"]},
        ENTRY | {"env": {"LEVEL": "2"}},
        ENTRY | {"env": {"LEVEL": "1", "LD_PRELOAD": "x"}},
        ENTRY | {"cwd": "tools"},
        {"url": "https://example.test/mcp"},
    ],
    ids=["program", "order of arguments", "value of a variable", "another variable", "folder", "address"],
)
async def test_c10_whatever_is_written_otherwise_has_another_digest(root: Path, other: dict[str, Any]) -> None:
    assert (await look(root, other)).digest != (await look(root)).digest


async def test_c10_name_place_kind_and_the_scripts_count_but_the_line_does_not(root: Path, tmp_path: Path) -> None:
    first = await look(root)
    assert (await look(root, source=f"{root}/.mcp.json:40")).digest == first.digest
    assert (await look(root, name="other")).digest != first.digest
    assert (await look(root, kind="remote")).digest != first.digest
    assert (await look(root, place=tmp_path / "elsewhere")).digest != first.digest
    (root / "run.sh").write_text("echo two")
    swapped = await look(root)
    assert swapped.digest != first.digest
    assert swapped.content == first.content
    assert swapped.text != first.text


async def test_one_approval_can_hold_for_all_workspaces_of_a_project(root: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "run.sh").write_text("echo one")
    assert (await look(root, checkout=workspace)).digest == (await look(root)).digest
    (workspace / "run.sh").write_text("echo two")
    assert (await look(root, checkout=workspace)).digest != (await look(root)).digest
    by_path = ["sh", str(root / "run.sh")]
    assert (await look(root, checkout=workspace, command=by_path)).files.keys() == {str(root / "run.sh")}


async def test_a_script_that_cannot_be_read_is_a_problem_and_no_crash(root: Path) -> None:
    (root / "run.sh").unlink()
    (root / "run.sh").mkdir()
    assert (await look(root)).problem == ""
    (root / "loop").symlink_to("loop")
    assert (await look(root, command=["sh", "loop"])).problem == ""
    found = await look(root, command=["sh", "-c", " ".join(map(str, range(20_000)))])
    assert "more than" in found.problem and not found.files


async def test_text_that_is_none_can_be_shown_and_stored(root: Path) -> None:
    found = await look(root, ENTRY | {"env": {"A": "\ud800", "B": "\x1b[2J"}})
    found.content.encode()
    assert read_definition(found.content).environment == {"A": "\ud800", "B": "\x1b[2J"}
