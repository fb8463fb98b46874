"""Listing a folder of a workspace: what git ignores is left out, what is secret is marked, long lists have pages."""

import base64
import binascii
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from rookery.files.entries import Entry, Row, in_json, last_path, shown, spread
from rookery.files.ignoring import Ignoring
from rookery.files.paging import Pending
from rookery.files.sandbox import Root
from rookery.files.walking import Names, Scope, Walk
from rookery.system.beneath import Beneath
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.lending import lend

PAGE = 1000
LONGEST_PAGE = 10_000
DEEPEST = 64
# Who asks for a second page is likely to ask for all. In one folder git is asked about each name, which is dearer.
_AHEAD, _AHEAD_IN_ONE = 60_000, 10_000


class ListingShape(msgspec.Struct):
    """`next_cursor` asks for the next page; None if this is the last one."""

    path: str
    entries: list[Entry]
    next_cursor: str | None


@dataclass(frozen=True)
class Listing:
    """A page of entries, in rows."""

    path: str
    rows: list[Row]
    next_cursor: str | None

    @property
    def entries(self) -> list[Entry]:
        return spread(self.rows)

    def written(self) -> str:
        """In JSON, of the shape above."""
        path, cursor = (msgspec.json.encode(text).decode() for text in (self.path, self.next_cursor))
        return in_json(self.rows, f'{{"path":{path},"entries":', f',"next_cursor":{cursor}}}')


async def list_folder(
    root: Root,
    git: Git,
    path: str,
    *,
    depth: int = 1,
    hidden: bool = False,
    sizes: bool = True,
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
    token, after = _read_cursor(cursor)
    with root.open_folder(path) as handle:
        scope = Scope(handle.names, depth, hidden, sizes)
    pending = root.paging.take(token, scope, after) or _begin(root, git, scope, after)
    await _look_ahead(root, pending, limit + 1, is_first=cursor is None)
    page = pending.take(limit)
    next_cursor = None
    if pending.ahead:
        pending.told = tuple(last_path(page).split("/"))[len(scope.start) :]
        next_cursor = _cursor(root.paging.keep(pending), pending.told)
    return Listing(shown("/".join(scope.start)) or ".", page, next_cursor)


def _begin(root: Root, git: Git, scope: Scope, after: Names) -> Pending:
    prefix = "".join(f"{name}/" for name in scope.start)
    return Pending(scope, Ignoring(git, root.path.joinpath(*scope.start), prefix, root.tracked), after, after)


async def _look_ahead(root: Root, pending: Pending, wanted: int, *, is_first: bool) -> None:
    """Until there are so many entries, or no more."""
    scope, ignoring = pending.scope, pending.ignoring
    most = wanted if is_first else max(wanted, _AHEAD if scope.depth > 1 else _AHEAD_IN_ONE)
    while pending.more and pending.count < wanted:
        if scope.depth > 1:
            await ignoring.learn_tracked()
        walk = Walk(scope, root.folders, root.denied, pending.seen, most, ignoring.tracked)
        await _in_thread(root, walk.begin)
        while walk.unknown:
            ignored = await ignoring.among(walk.unknown)
            await _in_thread(root, partial(walk.sift, ignored))
        pending.add(walk.rows)
        pending.more, pending.seen = walk.cut and walk.last != pending.seen, walk.last


async def _in_thread(root: Root, work: Callable[[Beneath], None]) -> None:
    try:
        held = root.held()
        await lend(partial(work, held), partial(os.close, held.folder))
    except OSError as error:
        raise RookeryError("file-unreadable", f"the folder cannot be listed: {error.strerror}") from error


def _cursor(token: str, names: Names) -> str:
    """It also works without what is kept under the token: it names the entry that was told last."""
    return f"{token}.{base64.urlsafe_b64encode(os.fsencode('/'.join(names))).decode()}"


def _read_cursor(cursor: str | None) -> tuple[str, Names]:
    if not cursor:
        return "", ()
    token, _, place = cursor.rpartition(".")
    try:
        return token, tuple(os.fsdecode(base64.b64decode(place, b"-_", validate=True)).split("/"))
    except (binascii.Error, ValueError):
        raise RookeryError("invalid-input", "this is no cursor of a listing", "leave it out to begin anew") from None
