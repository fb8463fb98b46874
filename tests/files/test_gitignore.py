"""Which files git tracks and ignores, as far as listings need it."""

import asyncio
import os
import subprocess
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from rookery.files.gitignore import TrackedFiles, parse_ignored
from rookery.files.list import list_folder
from rookery.files.sandbox import SandboxRoot
from rookery.system import git as git_index
from rookery.system.git import Git
from rookery.system.process.spawn import CompletedCommand, Spawner
from tests.support.requirements import requirement
from tests.support.sandbox import Tree, entries_of, paths

PRINTED = b"a-b\0a.b\0a/x\0a/y/z\0b\0c/d\0\xff\0"


def git(tree: Tree, *args: str) -> None:
    subprocess.run(["git", "-C", str(tree.root), *args], check=True, timeout=30)


def test_what_is_tracked_is_found_in_any_order() -> None:
    questions = [
        ("has_folder", "a"),
        ("has_file", "a-b"),
        ("has_folder", "a/y"),
        ("has_file", "b"),
        ("has_folder", "c"),
    ]
    for order in permutations(questions):
        tracked = TrackedFiles(PRINTED)
        assert all(getattr(tracked, ask)(path) for ask, path in order)
        assert tracked.has_all("", ["a-b", "a.b"])
        assert tracked.has_all("a/", ["x"])
        assert tracked.has_all("", ["b", "\udcff"])


def test_what_is_not_tracked_is_not_found() -> None:
    for tracked in (TrackedFiles(PRINTED), TrackedFiles()):
        assert not tracked.has_all("a/", ["x", "z"])
        assert not tracked.has_all("", ["a"])
        assert not any(tracked.has_file(path) for path in ("a", "x", "", "a/", "c"))
        assert not any(tracked.has_folder(path) for path in ("a/x", "b", "a/y/z", "y", "a-"))


def test_paths_begin_with_the_prefix() -> None:
    tracked = TrackedFiles(b"x\0y/z\0", "deep/er/")
    assert tracked.has_all("deep/er/", ["x"])
    assert tracked.has_folder("deep/er/y")
    assert not tracked.has_file("x")


def test_a_folder_of_which_only_the_content_is_ignored_is_not_ignored_itself() -> None:
    told = ["build/", "logs/", "logs/in/", "logs/in/a.log", "node_modules/", "src/z.log"]
    assert list(parse_ignored(told)) == ["build", "logs/in/a.log", "node_modules", "src/z.log"]


@requirement("files.list.path")
def test_in_a_folder_that_is_ignored_what_is_tracked_is_listed_and_nothing_else(root: SandboxRoot, tree: Tree) -> None:
    tree.write(".gitignore", b"vendor/\n*.log\n")
    for name in ("vendor/kept/a", "vendor/kept/b", "vendor/gone/x", "src/kept.log", "src/gone.log", "src/new/gone.log"):
        tree.write(name)
    git(tree, "add", "-f", "vendor/kept/a", "src/kept.log")
    tree.write("src/new/sub/kept")
    listed = ["src", "src/kept.log", "src/new", "src/new/sub", "src/new/sub/kept", "vendor", "vendor/kept"]
    assert paths(entries_of(root, depth=9)) == [*listed, "vendor/kept/a"]
    assert paths(entries_of(root, depth=2)) == ["src", "src/kept.log", "src/new", "vendor", "vendor/kept"]
    assert paths(entries_of(root, "vendor", depth=9)) == ["vendor/kept", "vendor/kept/a"]


@requirement("files.list.path")
def test_of_very_many_new_files_those_that_are_ignored_are_left_out(root: SandboxRoot, tree: Tree) -> None:
    tree.write(".gitignore", b"*.log\nout/\n")
    (tree.root / "new" / "out").mkdir(parents=True)
    for number in range(3000):
        for name in (f"{number:04}", f"{number:04}.log", f"out/{number:04}"):
            os.close(os.open(tree.root / "new" / name, os.O_CREAT, 0o600))
    whole = ["new", *(f"new/{number:04}" for number in range(3000))]
    assert paths(entries_of(root, depth=3, limit=10_000)) == whole
    first = entries_of(root, depth=3, limit=100)
    assert paths(first) == whole[:100]
    assert paths(entries_of(root, depth=3, limit=10_000, cursor=first.next_cursor)) == whole[100:]


@requirement("files.list.path")
def test_what_is_tracked_is_asked_again_only_if_the_index_has_changed(
    root: SandboxRoot, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_index, "SETTLED_SECONDS", 0.0)
    tree.write(".gitignore", b"*.log\n")
    tree.write("a/x")
    tree.write("a/y.log")
    git(tree, "add", ".")
    asked: list[str] = []

    class Noting(Git):
        async def run(self, folder: Path, *args: str, **more: Any) -> CompletedCommand:
            asked.append(args[0])
            return await super().run(folder, *args, **more)

    async def listed() -> list[str]:
        asked.clear()
        return paths(await list_folder(root, Noting(Spawner("test")), ".", depth=3))

    assert asyncio.run(listed()) == ["a", "a/x"]
    assert asked == ["ls-files", "check-ignore"]
    assert asyncio.run(listed()) == ["a", "a/x"]
    assert asked == ["check-ignore"]
    git(tree, "add", "-f", "a/y.log")
    assert asyncio.run(listed()) == ["a", "a/x", "a/y.log"]
    assert asked == ["ls-files"]


def test_an_index_that_was_written_just_now_has_no_mark_to_be_remembered_by(tree: Tree) -> None:
    tree.write("a")
    git(tree, "add", ".")
    assert git_index.read_index_mark(tree.root) is None
    assert git_index.read_index_mark(tree.outside) is None
