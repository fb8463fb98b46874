"""Listing a folder of a workspace: what git ignores is left out, what is secret is marked, long lists have pages."""

import asyncio
import base64
import binascii
import os

import msgspec

from rookery.files.ignoring import ignored_among, ignored_beneath
from rookery.files.sandbox import Root
from rookery.files.walking import Found, Names, Type, Walk
from rookery.system.errors import RookeryError
from rookery.system.git import Git

PAGE = 1000
LONGEST_PAGE = 10_000
DEEPEST = 64


class Entry(msgspec.Struct, frozen=True):
    """`path` is from the workspace's root, as `read_file` takes it; bytes that are no text stand as `\\xff` in it.

    `denied` says why it may not be read, if so. A link's target is not told: it may lie outside.
    """

    path: str
    type: Type
    size: int | None = None
    denied: str = ""


class Listing(msgspec.Struct, frozen=True):
    """`next_cursor` asks for the next page; None if this is the last one."""

    path: str
    entries: list[Entry]
    next_cursor: str | None


async def list_folder(
    root: Root,
    git: Git,
    path: str,
    *,
    depth: int = 1,
    hidden: bool = False,
    limit: int = PAGE,
    cursor: str | None = None,
) -> Listing:
    """The entries of a folder, in the order of their names, each folder followed by what it holds, to that depth.

    Links are told and never followed. A repository inside this one is told, and what it holds is not.
    """
    if not 1 <= depth <= DEEPEST:
        raise RookeryError("invalid-input", f"depth must be from 1 to {DEEPEST}")
    if not 1 <= limit <= LONGEST_PAGE:
        raise RookeryError("invalid-input", f"limit must be from 1 to {LONGEST_PAGE}", "use cursor for more")
    after = _after(cursor)
    with root.open_folder(path) as handle:
        start = handle.names
    pager = _Pager(root, git, start, hidden)
    found = await (pager.one_level(after, limit + 1) if depth == 1 else pager.deep(depth, after, limit + 1))
    more = len(found) > limit
    return Listing(
        _shown(start) or ".",
        [_entry(one) for one in found[:limit]],
        _cursor(found[limit - 1].names[len(start) :]) if more else None,
    )


class _Pager:
    def __init__(self, root: Root, git: Git, start: Names, hidden: bool) -> None:
        self._root, self._git, self._start, self._hidden = root, git, start, hidden
        self._folder = root.path.joinpath(*start)

    async def one_level(self, after: Names, limit: int) -> list[Found]:
        """Asks git about the names of this page only; a folder may hold a million of them."""
        page: list[Found] = []
        while len(page) < limit:
            found = await self._walk(1, after, limit, frozenset())
            names = [one.names[-1] for one in found if not one.denied]
            ignored = await ignored_among(self._git, self._folder, names)
            page += [one for one in found if one.names[-1] not in ignored]
            if len(found) < limit:
                break
            after = found[-1].names[len(self._start) :]
        return page[:limit]

    async def deep(self, depth: int, after: Names, limit: int) -> list[Found]:
        ignored = await ignored_beneath(self._git, self._folder)
        return await self._walk(depth, after, limit, ignored)

    async def _walk(self, depth: int, after: Names, limit: int, ignored: frozenset[str]) -> list[Found]:
        def keep(names: Names) -> bool:
            return (self._hidden or not names[-1].startswith(".")) and (not ignored or "/".join(names) not in ignored)

        try:
            walk = Walk(self._root.held(), self._root.denied, self._start, depth, after, keep)
            return await asyncio.to_thread(walk.first, limit)
        except OSError as error:
            raise RookeryError("file-unreadable", f"the folder cannot be listed: {error.strerror}") from error


def _entry(found: Found) -> Entry:
    return Entry(_shown(found.names), found.type, found.size, found.denied)


def _shown(names: Names) -> str:
    """The path, with bytes that are no text written out. No path that is given to us has a backslash in it."""
    path = "/".join(names)
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")


def _cursor(names: Names) -> str:
    return base64.urlsafe_b64encode(os.fsencode("/".join(names))).decode()


def _after(cursor: str | None) -> Names:
    if not cursor:
        return ()
    try:
        return tuple(os.fsdecode(base64.b64decode(cursor, b"-_", validate=True)).split("/"))
    except (binascii.Error, ValueError):
        raise RookeryError("invalid-input", "this is no cursor of a listing", "leave it out to begin anew") from None
