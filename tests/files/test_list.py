"""Listing: what git ignores, types and sizes, hidden files, depth, pages, and names of all kinds."""

import os
import subprocess
from typing import Any

import pytest

from rookery.files.list import MAX_DEPTH, MAX_PAGE
from rookery.files.sandbox import SandboxRoot
from rookery.system.errors import RookeryError
from tests.support.requirements import requirement
from tests.support.sandbox import SECRET_NAME, Tree, entries_of, look, open_descriptors, paths, refusal


@requirement("files.list.path", "files.list.options")
def test_a_folder_is_listed_in_the_order_of_names_with_types_and_sizes(root: SandboxRoot, tree: Tree) -> None:
    tree.write("b/x", b"12345")
    tree.write("b/a", b"")
    tree.write("b/Z/deep")
    tree.link("b/link", "x")
    listed = entries_of(root, "b")
    assert (listed.path, listed.next_cursor) == ("b", None)
    assert [(entry.path, entry.type, entry.size) for entry in listed.entries] == [
        ("b/Z", "folder", None),
        ("b/a", "file", 0),
        ("b/link", "link", None),
        ("b/x", "file", 5),
    ]


@requirement("files.list.path")
@pytest.mark.parametrize("depth", [1, 5])
def test_what_git_ignores_is_left_out_and_what_is_tracked_is_not(root: SandboxRoot, tree: Tree, depth: int) -> None:
    tree.write(".gitignore", b"*.log\nbuild/\n!kept.log\n/only-top\n")
    tree.write("sub/.gitignore", b"own\n")
    tree.write(".git/info/exclude", b"excluded\n")
    for name in ("x.log", "kept.log", "build/deep/x", "only-top", "excluded", "sub/own", "sub/only-top", "logs/a.log"):
        tree.write(name)
    tree.write("tracked.log")
    subprocess.run(["git", "-C", str(tree.root), "add", "-f", "tracked.log"], check=True, timeout=30)
    top = [path for path in paths(entries_of(root, depth=depth)) if "/" not in path]
    assert top == ["kept.log", "logs", "sub", "tracked.log"]
    assert paths(entries_of(root, "sub", depth=depth)) == ["sub/only-top"]


@requirement("files.list.options")
def test_hidden_files_and_deeper_folders_are_listed_if_asked_for(root: SandboxRoot, tree: Tree) -> None:
    tree.write("a/.hidden/x")
    tree.write("a/b/c")
    assert paths(entries_of(root, "a")) == ["a/b"]
    assert paths(entries_of(root, "a", hidden=True)) == ["a/.hidden", "a/b"]
    assert paths(entries_of(root, "a", depth=2)) == ["a/b", "a/b/c"]
    assert paths(entries_of(root, "a", depth=2, hidden=True)) == ["a/.hidden", "a/.hidden/x", "a/b", "a/b/c"]
    assert paths(entries_of(root, hidden=True)) == [".git", "a"]


@requirement("files.list.options")
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("limit", [1, 3, 7])
def test_p30_pages_give_each_entry_once_and_in_the_order_of_the_whole(
    root: SandboxRoot, tree: Tree, depth: int, limit: int
) -> None:
    tree.write(".gitignore", b"*.log\n")
    for name in ("a/x", "a-b", "a/y/z", "a.b", "b.log", "c/d.log", "c/e", "f", "g/h/i"):
        tree.write(name)
    whole = entries_of(root, depth=depth)
    assert whole.next_cursor is None
    got: list[str] = []
    cursor = None
    for _ in range(len(whole.entries)):
        page = entries_of(root, depth=depth, limit=limit, cursor=cursor)
        assert 1 <= len(page.entries) <= limit
        got += paths(page)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert cursor is None
    assert got == paths(whole)
    assert got == sorted(got, key=lambda path: path.split("/"))


@requirement("files.list.options")
def test_p30_a_page_goes_on_where_the_last_one_ended_although_that_entry_is_gone(root: SandboxRoot, tree: Tree) -> None:
    for name in ("a", "b/x", "c"):
        tree.write(name)
    page = entries_of(root, depth=2, limit=3)
    assert paths(page) == ["a", "b", "b/x"]
    (tree.root / "b" / "x").unlink()
    (tree.root / "b").rmdir()
    assert paths(entries_of(root, depth=2, cursor=page.next_cursor)) == ["c"]


@requirement("files.sandbox.special")
def test_p30_a_folder_of_many_entries_comes_in_pages(root: SandboxRoot, tree: Tree) -> None:
    tree.write(".gitignore", b"many/000*\n")
    (tree.root / "many").mkdir()
    for number in range(12_000):
        os.close(os.open(tree.root / "many" / f"{number:05}", os.O_CREAT, 0o600))
    first = entries_of(root, "many")
    assert (len(first.entries), first.entries[0].path) == (1000, "many/00100")
    assert entries_of(root, "many", cursor=first.next_cursor).entries[0].path == "many/01100"


def test_p30_links_to_folders_are_told_and_not_entered(root: SandboxRoot, tree: Tree) -> None:
    tree.write("a/x")
    tree.link("a/round", "..")
    tree.link("a/out", "../../proj-evil")
    listed = entries_of(root, depth=MAX_DEPTH)
    assert paths(listed) == ["a", "a/out", "a/round", "a/x"]
    assert SECRET_NAME not in str(listed)


def test_a_repository_inside_is_told_and_not_entered(root: SandboxRoot, tree: Tree) -> None:
    tree.write("inner/x")
    subprocess.run(["git", "init", "-q", str(tree.root / "inner")], check=True, timeout=30)
    tree.write("inner/.gitignore", b"own\n")
    tree.write("inner/own")
    assert paths(entries_of(root, depth=5)) == ["inner"]
    assert paths(entries_of(root, "inner")) == ["inner/x"]


def test_p14_names_that_are_no_text_or_have_odd_characters_are_listed(root: SandboxRoot, tree: Tree) -> None:
    for name in (b"\xff\xfe", b"new\nline", b"\x1b[31m", "ü".encode(), b":(glob)*", b"sp ace"):
        os.close(os.open(os.fsencode(tree.root) + b"/" + name, os.O_CREAT, 0o600))
    for depth in (1, 2):
        assert paths(entries_of(root, depth=depth)) == [
            *("\x1b[31m", ":(glob)*", "new\nline", "sp ace", "ü", "\\xff\\xfe"),
        ]


@requirement("files.list.options")
def test_options_that_make_no_sense_are_told(root: SandboxRoot) -> None:
    depths, limits = ({"depth": 0}, {"depth": MAX_DEPTH + 1}), ({"limit": 0}, {"limit": MAX_PAGE + 1})
    senseless: tuple[dict[str, Any], ...] = (*depths, *limits, {"cursor": "?"})
    for options in senseless:
        with pytest.raises(RookeryError) as caught:
            entries_of(root, ".", **options)
        assert caught.value.code == "invalid-input"


def test_a_listing_runs_nothing_of_the_repository_and_leaves_no_descriptor(root: SandboxRoot, tree: Tree) -> None:
    mark = tree.outside / "ran"
    script = tree.write(".git/hooks/monitor", f"#!/bin/sh\ntouch {mark}\n".encode())
    script.chmod(0o700)
    subprocess.run(["git", "-C", str(tree.root), "config", "core.fsmonitor", str(script)], check=True, timeout=30)
    tree.write("a/b/x")
    before = open_descriptors()
    assert paths(entries_of(root)) == ["a"]
    assert paths(entries_of(root, depth=3)) == ["a", "a/b", "a/b/x"]
    assert not mark.exists()
    assert open_descriptors() == before


ODD_NAMES = [
    *(
        b"a:b.md",
        b"con",
        b"aux",
        b"NUL",
        b"com1",
        b"back\\slash.txt",
        b"C:\\x",
        b"dot.",
        b"space ",
        b" space",
        b"~",
        b"~x",
    ),
    *(
        b"file:",
        b"a*b",
        b"a?b",
        b"a|b",
        b"<a>",
        b'"quoted"',
        b"'",
        b"$HOME",
        b"%41",
        b"-rf",
        b"...",
        b"a\tb",
        b"new\nline",
    ),
    *(
        b"\x1b[31m",
        b"\xff\xfe",
        b"caf\xe9.txt",
        "café.txt".encode(),
        b"\\xff",
        b"x\\xe9\xe9",
        "\u202etxt".encode(),
        b"#",
        b"@",
    ),
]


@requirement("files.read.names")
@pytest.mark.parametrize("folder", ["", "a:/", "back\\slash/", "con/"])
def test_p14_p22_every_name_that_is_listed_as_readable_can_be_read(root: SandboxRoot, tree: Tree, folder: str) -> None:
    for name in ODD_NAMES:
        path = os.fsencode(tree.root) + b"/" + folder.encode() + name
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - the name is bytes
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(name)
    entries = entries_of(root, folder or ".", hidden=True).entries
    listed = [entry for entry in entries if entry.type == "file" and not entry.denied]
    assert len(listed) == len(ODD_NAMES)
    for entry in listed:
        content = look(root, entry.path)
        assert content.path == entry.path and content.size == entry.size


def test_a_name_with_escapes_comes_before_the_bytes_that_are_shown_like_it(root: SandboxRoot, tree: Tree) -> None:
    tree.write("\\xff", b"literal")
    os.close(os.open(os.fsencode(tree.root) + b"/\xff", os.O_CREAT, 0o600))
    assert look(root, "\\xff").text == "literal"
    # Escapes of valid UTF-8 and of ASCII stand for nothing.
    tree.write("A")
    tree.write("é")
    for path in ("\\x41", "\\xc3\\xa9", "\\x2e\\x2e"):
        assert refusal(root, path) == {"file-not-found"}
