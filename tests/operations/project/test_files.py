"""The tools for files, as a view calls them: content, failures, and their definitions."""

import asyncio
import base64
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec import Raw

from rookery.files.context.engine import ProjectContext
from rookery.files.sandbox import SandboxRoot
from rookery.operations.operation import bind_operations
from rookery.operations.project.files import FileOperations
from rookery.operations.project.tasks import ProjectTasks, TaskOperations
from rookery.system.git import Git
from rookery.system.process.spawn import Spawner
from rookery.toolsets.project import project_toolset
from rookery.toolsets.toolset import Toolset
from tests.support.requirements import requirement
from tests.support.sandbox import SECRET, SECRET_NAME, Tree, make_tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path)


@dataclass
class OnlyWorkspace:
    """The files of the only workspace that there is."""

    sandbox: SandboxRoot

    async def root(self, directory: Path) -> SandboxRoot:
        return self.sandbox

    async def tasks(self, directory: Path, *, limited: bool) -> ProjectTasks:
        raise AssertionError

    async def context(self, directory: Path, *, everything: bool) -> ProjectContext:
        raise AssertionError


@pytest.fixture
def toolset(tree: Tree) -> Iterator[Toolset]:
    with SandboxRoot(tree.root) as root:
        files, workspaces = OnlyWorkspace(root), cast(Any, None)
        git = Git(Spawner(uuid.uuid4().hex))
        operations = bind_operations(FileOperations(workspaces, files, git), TaskOperations(workspaces, files))
        yield project_toolset(operations, files, None, tree.root)


def call(toolset: Toolset, tool: str, **given: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": Raw(json.dumps(given).encode())}
    answered = asyncio.run(
        toolset.handle(cast(Any, SimpleNamespace(method="tools/call", meta={}, session=None)), params)
    )
    return msgspec.json.decode(msgspec.json.encode(answered))


@requirement("files.read.path")
def test_a_file_comes_as_its_text_and_nothing_else(toolset: Toolset, tree: Tree) -> None:
    tree.write("a.txt", b"one\ntwo\n")
    got = call(toolset, "read_file", path="a.txt")
    assert got["content"] == [{"type": "text", "text": "one\ntwo\n"}]
    assert "structuredContent" not in got
    assert got["_meta"]["rookery/file"] == {
        "path": "a.txt",
        "size": 8,
        "media_type": "text/plain",
        "encoding": "utf-8",
        "first_line": 1,
        "last_line": 2,
    }


@requirement("files.read.bounds")
def test_what_is_cut_and_an_encoding_stand_after_the_text(toolset: Toolset, tree: Tree) -> None:
    tree.write("a.txt", "grün\nblau\n".encode("latin-1"))
    got = call(toolset, "read_file", path="a.txt", max_bytes=6)
    assert [block["text"] for block in got["content"]] == [
        "grün\n",
        "[a.txt: encoding iso-8859-1; cut after line 1 (the file has 10 bytes): continue with first_line 2]",
    ]


@requirement("files.read.bounds")
def test_images_and_binary_files_come_as_such(toolset: Toolset, tree: Tree) -> None:
    image, binary = b"\x89PNG\r\n\x1a\n1234", b"\x7fELF\0"
    tree.write("a.png", image)
    tree.write("a.out", binary)
    (shown,) = call(toolset, "read_file", path="a.png")["content"]
    assert shown == {"type": "image", "data": base64.b64encode(image).decode(), "mimeType": "image/png"}
    (inside,) = call(toolset, "read_file", path="a.out")["content"]
    assert inside["resource"]["blob"] == base64.b64encode(binary).decode()
    assert inside["resource"]["uri"] == (tree.root / "a.out").as_uri()


@requirement("files.list.path", "files.list.options")
def test_a_folder_comes_as_entries(toolset: Toolset, tree: Tree) -> None:
    tree.write(".gitignore", b"*.log\n")
    tree.write("a/b.txt", b"123")
    tree.write("a/c.log")
    got = call(toolset, "list_directory", path="a")
    assert got["structuredContent"] == {
        "path": "a",
        "entries": [{"path": "a/b.txt", "type": "file", "size": 3, "denied": ""}],
        "next_cursor": None,
    }
    assert json.loads(got["content"][0]["text"]) == got["structuredContent"]


@requirement("files.sandbox.outside")
@pytest.mark.parametrize("tool", ["read_file", "list_directory"])
@pytest.mark.parametrize("path", ["/etc/passwd", "../proj-evil", "../proj-evil/secret", "link"])
def test_a_path_outside_is_a_failure_with_the_words_for_it(toolset: Toolset, tree: Tree, tool: str, path: str) -> None:
    tree.link("link", "../proj-evil")
    got = call(toolset, tool, path=path)
    assert got["isError"] is True
    assert got["structuredContent"]["error"]["code"] == "path-outside-root"
    assert got["content"][0]["text"].startswith(f"Path outside project root: {path}")
    assert SECRET.decode() not in str(got)
    assert SECRET_NAME not in str(got)


@pytest.mark.parametrize("tool", ["read_file", "list_directory"])
@pytest.mark.parametrize("given", [{}, {"path": 1}, {"path": None}, {"path": "x", "other": 1}])
def test_arguments_that_do_not_fit_are_told(toolset: Toolset, tool: str, given: dict[str, Any]) -> None:
    assert call(toolset, tool, **given)["structuredContent"]["error"]["code"] == "invalid-input"


def test_bulk_text_promises_no_structured_content(toolset: Toolset) -> None:
    definitions = {entry.name: msgspec.json.decode(entry.raw) for entry in toolset.catalog.tools}
    assert [name for name, one in definitions.items() if "outputSchema" in one] == ["list_directory", "list_just_tasks"]
    required = {name: one["inputSchema"]["required"] for name, one in definitions.items()}
    assert required == {
        "read_file": ["path"],
        "list_directory": ["path"],
        "get_project_context": [],
        "list_just_tasks": [],
        "run_just_task": ["task_name"],
    }
    changing = [name for name, one in definitions.items() if not one["annotations"]["readOnlyHint"]]
    assert changing == ["run_just_task"]
