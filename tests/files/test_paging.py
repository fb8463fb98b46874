"""Pages of a listing: what is cached between them, for how long, and that results do not depend on it."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable

import pytest

from rookery.files import paging
from rookery.files.list import Listing, list_folder
from rookery.files.sandbox import SandboxRoot
from rookery.system.git import Git
from tests.support.requirements import requirement
from tests.support.sandbox import Tree, entries_of, paths

NAMES = ("a-b", "a.b", "a/x", "a/y/z", "b", "c/d", "c/e", "f", "foo.py", "foo/bar", "foo/baz", "g/h/i")


def fill(tree: Tree, *, track: bool) -> list[str]:
    for name in NAMES:
        tree.write(name)
    if track:
        subprocess.run(["git", "-C", str(tree.root), "add", "."], check=True, timeout=30)
    folders = {name.rpartition("/")[0] for name in NAMES} | {"a", "g"}
    return sorted({*NAMES, *folders} - {""}, key=lambda path: path.split("/"))


async def all_pages(ask: Callable[[str | None], Awaitable[Listing]]) -> list[str]:
    got: list[str] = []
    cursor: str | None = None
    for _ in range(100):
        page = await ask(cursor)
        got += paths(page)
        cursor = page.next_cursor
        if cursor is None:
            return got
    raise AssertionError("it goes round in a circle")


@requirement("files.list.options")
@pytest.mark.parametrize("track", [True, False])
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_p30_all_pages_are_the_whole_also_where_git_sorts_otherwise(
    root: SandboxRoot, git: Git, tree: Tree, track: bool, limit: int
) -> None:
    whole = fill(tree, track=track)

    async def ask(cursor: str | None) -> Listing:
        return await list_folder(root, git, ".", depth=5, limit=limit, cursor=cursor)

    assert asyncio.run(all_pages(ask)) == whole
    assert len(root.paging) == 0


@requirement("files.list.options")
def test_p30_a_cursor_whose_listing_is_no_longer_kept_goes_on_by_name(root: SandboxRoot, git: Git, tree: Tree) -> None:
    whole = fill(tree, track=True)

    async def ask(cursor: str | None) -> Listing:
        listed = await list_folder(root, git, ".", depth=5, limit=3, cursor=cursor)
        root.paging.clear()
        return listed

    assert asyncio.run(all_pages(ask)) == whole


def test_a_page_that_is_asked_for_twice_is_the_same_twice(root: SandboxRoot, tree: Tree) -> None:
    fill(tree, track=True)
    first = entries_of(root, depth=5, limit=4)
    second = entries_of(root, depth=5, limit=4, cursor=first.next_cursor)
    assert paths(entries_of(root, depth=5, limit=4, cursor=first.next_cursor)) == paths(second)


def test_a_cursor_is_of_the_listing_that_it_came_from(root: SandboxRoot, tree: Tree) -> None:
    fill(tree, track=True)
    first = entries_of(root, depth=5, limit=2)
    assert paths(first) == ["a", "a/x"]
    assert paths(entries_of(root, depth=1, limit=2, cursor=first.next_cursor)) == ["a-b", "a.b"]
    assert paths(entries_of(root, "foo", limit=2, cursor=first.next_cursor)) == ["foo/bar", "foo/baz"]


def test_only_so_many_listings_are_kept_and_none_of_a_closed_root(root: SandboxRoot, git: Git, tree: Tree) -> None:
    fill(tree, track=True)

    async def begin_many() -> int:
        for _ in range(50):
            await list_folder(root, git, ".", depth=5, limit=1)
        return len(root.paging)

    assert asyncio.run(begin_many()) == 8
    root.close()
    assert len(root.paging) == 0


def test_a_listing_that_is_left_alone_is_forgotten(
    root: SandboxRoot, git: Git, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "KEEP_SECONDS", 0.0)
    fill(tree, track=True)

    async def leave() -> int:
        await list_folder(root, git, ".", depth=5, limit=1)
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, later.set)
        await asyncio.wait_for(later.wait(), 30)
        return len(root.paging)

    assert asyncio.run(leave()) == 0


def test_a_listing_that_takes_too_much_room_is_not_kept(
    root: SandboxRoot, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "MAX_KEPT_BYTES", 100)
    whole = fill(tree, track=True)
    first = entries_of(root, depth=5, limit=3)
    assert len(root.paging) == 0
    assert paths(first) + paths(entries_of(root, depth=5, cursor=first.next_cursor)) == whole
