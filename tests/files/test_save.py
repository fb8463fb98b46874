"""Saving files in a workspace: no foreign file is overwritten, and nothing is written outside."""

import os
from pathlib import Path

import pytest

from rookery.files.sandbox import SandboxRoot
from rookery.files.save import save_file
from rookery.files.secrets import DenyRules
from rookery.system.errors import RookeryError
from tests.support.requirements import requirement
from tests.support.sandbox import SECRET, Tree, open_descriptors

OURS = b"ours "


def is_ours(head: bytes) -> bool:
    return head.startswith(OURS)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_a_file_is_saved_whole_with_the_folders_on_its_way(root: SandboxRoot, tree: Tree) -> None:
    before = open_descriptors()
    assert save_file(root, "a/b/c.png", OURS + b"one", is_ours) == tree.root / "a/b/c.png"
    assert save_file(root, str(tree.root / "top.png"), OURS, is_ours) == tree.root / "top.png"
    assert (tree.root / "a/b/c.png").read_bytes() == OURS + b"one"
    assert [one.name for one in (tree.root / "a/b").iterdir()] == ["c.png"]
    assert open_descriptors() == before


def test_a_file_of_ours_is_replaced_and_no_other(root: SandboxRoot, tree: Tree) -> None:
    save_file(root, "one.png", OURS + b"one", is_ours)
    save_file(root, "one.png", OURS + b"two", is_ours)
    assert (tree.root / "one.png").read_bytes() == OURS + b"two"
    tree.write("README.md")
    tree.link("link.png", "one.png")
    (tree.root / "folder").mkdir()
    os.mkfifo(tree.root / "pipe")
    for name in ("README.md", "link.png", "folder", "pipe"):
        with pytest.raises(RookeryError) as caught:
            save_file(root, name, OURS + b"three", is_ours)
        assert caught.value.code == "invalid-input"
    assert (tree.root / "README.md").read_bytes() == b"inside\n"
    assert (tree.root / "one.png").read_bytes() == OURS + b"two"


@requirement("term.shot.path")
@pytest.mark.parametrize(
    "path",
    [
        "../shot.png",
        "a/../../shot.png",
        "/etc/shot.png",
        "{outside}/shot.png",
        "out/shot.png",
        "out/new/shot.png",
        "deep/out/shot.png",
        "absolute/shot.png",
    ],
)
def test_outside_of_the_root_nothing_is_written(root: SandboxRoot, tree: Tree, path: str) -> None:
    tree.link("out", "../proj-evil")
    tree.link("deep/out", "../../proj-evil")
    tree.link("absolute", tree.outside)
    before = everything(tree.root.parent)
    with pytest.raises(RookeryError) as caught:
        save_file(root, path.format(outside=tree.outside), OURS, is_ours)
    assert caught.value.code == "path-outside-root"
    assert everything(tree.root.parent) == before
    assert (tree.outside / "secret").read_bytes() == SECRET


@requirement("term.shot.path")
@pytest.mark.parametrize(
    "path",
    [".git/shot.png", ".GIT/hooks/shot.png", "into/shot.png", ".env", "a/id_rsa", ".ssh/shot.png", "inner/shot.png"],
)
def test_where_git_secrets_and_other_workspaces_are_nothing_is_written(
    root: SandboxRoot, tree: Tree, path: str
) -> None:
    tree.link("into", ".git")
    (tree.root / "inner").mkdir()
    root.deny_rules = DenyRules(workspaces=(("inner",),))
    before = everything(tree.root)
    with pytest.raises(RookeryError) as caught:
        save_file(root, path, OURS, is_ours)
    assert caught.value.code == "path-denied"
    assert everything(tree.root) == before
    assert not (tree.root / "a").exists()


@pytest.mark.parametrize("path", ["", ".", "a/", "a/../b.png", "x\0y", "https://x/y.png", "c:\\x.png"])
def test_what_names_no_file_is_refused(root: SandboxRoot, path: str) -> None:
    with pytest.raises(RookeryError) as caught:
        save_file(root, path, OURS, is_ours)
    assert caught.value.code == "invalid-input"


@requirement("term.shot.path")
def test_a_link_that_comes_between_leads_nowhere(
    root: SandboxRoot, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders are renamed and links put in their place after the way was looked at."""
    (tree.root / "pictures").mkdir()
    opened = SandboxRoot.open_folder

    def swapped(self: SandboxRoot, path: str) -> object:
        handle = opened(self, path)
        if path == "pictures":
            (tree.root / "pictures").rename(tree.root / "moved")
            tree.link("pictures", tree.outside)
        return handle

    monkeypatch.setattr(SandboxRoot, "open_folder", swapped)
    save_file(root, "pictures/shot.png", OURS, is_ours)
    assert sorted(one.name for one in tree.outside.iterdir()) == ["outside-name", "secret"]
    assert (tree.root / "moved" / "shot.png").read_bytes() == OURS


@pytest.mark.parametrize("fails", ["fsync", "link"])
def test_a_write_that_fails_leaves_nothing(
    root: SandboxRoot, tree: Tree, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, fails, full)
    with pytest.raises(RookeryError) as caught:
        save_file(root, "one.png", OURS, is_ours)
    monkeypatch.undo()
    assert caught.value.code == "file-unwritable"
    assert "No space left" in caught.value.message
    assert not [one for one in tree.root.iterdir() if one.name != ".git"]


def test_a_filesystem_without_second_names_does_too(
    root: SandboxRoot, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", never)
    save_file(root, "one.png", OURS, is_ours)
    assert (tree.root / "one.png").read_bytes() == OURS
