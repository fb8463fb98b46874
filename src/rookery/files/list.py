"""List a folder of a workspace, in pages.

Files that git ignores are left out, and denied files are marked.
"""

import base64
import binascii
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from rookery.files.entries import Entry, ListingRow, display_path, expand_rows, last_path, rows_to_json
from rookery.files.gitignore import IgnoreChecker
from rookery.files.paging import PendingListing
from rookery.files.sandbox import SandboxRoot
from rookery.files.walk import PathNames, Walk, WalkScope
from rookery.system.errors import RookeryError
from rookery.system.fs.beneath import Beneath
from rookery.system.git import Git
from rookery.system.threads import run_and_close

DEFAULT_PAGE = 1000
MAX_PAGE = 10_000
MAX_DEPTH = 64
# A client that requests a second page will likely request all. In one folder git checks each name, which costs more.
_MAX_AHEAD = 60_000
_MAX_AHEAD_FLAT = 10_000


class ListingShape(msgspec.Struct):
    """The JSON shape of a page. `next_cursor` requests the next page; None if this is the last one."""

    path: str
    entries: list[Entry]
    next_cursor: str | None


@dataclass(frozen=True)
class Listing:
    """A page of entries, in rows."""

    path: str
    rows: list[ListingRow]
    next_cursor: str | None

    @property
    def entries(self) -> list[Entry]:
        return expand_rows(self.rows)

    def to_json(self) -> str:
        """Return the page as JSON, in the shape of `ListingShape`."""
        path, cursor = (msgspec.json.encode(text).decode() for text in (self.path, self.next_cursor))
        return rows_to_json(self.rows, f'{{"path":{path},"entries":', f',"next_cursor":{cursor}}}')


async def list_folder(
    root: SandboxRoot,
    git: Git,
    path: str,
    *,
    depth: int = 1,
    hidden: bool = False,
    sizes: bool = True,
    limit: int = DEFAULT_PAGE,
    cursor: str | None = None,
) -> Listing:
    """Return the entries of a folder, sorted by name, each folder followed by its content, down to `depth`.

    Links are listed and never followed. A repository inside this one is listed without its content.
    """
    if not 1 <= depth <= MAX_DEPTH:
        raise RookeryError("invalid-input", f"depth must be from 1 to {MAX_DEPTH}")
    if not 1 <= limit <= MAX_PAGE:
        raise RookeryError("invalid-input", f"limit must be from 1 to {MAX_PAGE}", "use cursor for more")
    token, after = _read_cursor(cursor)
    with root.open_folder(path) as handle:
        scope = WalkScope(handle.names, depth, hidden, sizes)
    pending = root.paging.take(token, scope, after) or _start_listing(root, git, scope, after)
    await _read_ahead(root, pending, limit + 1, is_first=cursor is None)
    page = pending.take(limit)
    next_cursor = None
    if pending.pending_rows:
        pending.sent_until = tuple(last_path(page).split("/"))[len(scope.start) :]
        next_cursor = _write_cursor(root.paging.keep(pending), pending.sent_until)
    return Listing(display_path("/".join(scope.start)) or ".", page, next_cursor)


def _start_listing(root: SandboxRoot, git: Git, scope: WalkScope, after: PathNames) -> PendingListing:
    prefix = "".join(f"{name}/" for name in scope.start)
    return PendingListing(
        scope, IgnoreChecker(git, root.path.joinpath(*scope.start), prefix, root.tracked), after, after
    )


async def _read_ahead(root: SandboxRoot, pending: PendingListing, wanted: int, *, is_first: bool) -> None:
    """Read entries until `wanted` are pending, or there are no more."""
    scope = pending.scope
    ignoring = pending.ignore_checker
    most = wanted if is_first else max(wanted, _MAX_AHEAD if scope.depth > 1 else _MAX_AHEAD_FLAT)
    while pending.has_more and pending.count < wanted:
        if scope.depth > 1:
            await ignoring.load_tracked()
        walk = Walk(scope, root.folders, root.deny_rules, pending.walked_until, most, ignoring.tracked)
        await _run_in_thread(root, walk.start)
        while walk.unknown:
            ignored = await ignoring.find_ignored(walk.unknown)
            await _run_in_thread(root, partial(walk.remove_ignored, ignored))
        pending.add(walk.rows)
        pending.has_more, pending.walked_until = walk.has_more and walk.last != pending.walked_until, walk.last


async def _run_in_thread(root: SandboxRoot, work: Callable[[Beneath], None]) -> None:
    """Run a part of a walk in a thread, with a descriptor of the root that stays open for it."""
    try:
        beneath = root.open_beneath()
        await run_and_close(partial(work, beneath), partial(os.close, beneath.folder))
    except OSError as error:
        raise RookeryError("file-unreadable", f"the folder cannot be listed: {error.strerror}") from error


def _write_cursor(token: str, names: PathNames) -> str:
    """Return a cursor. It names the last entry that was sent, so that it works without the kept listing too."""
    return f"{token}.{base64.urlsafe_b64encode(os.fsencode('/'.join(names))).decode()}"


def _read_cursor(cursor: str | None) -> tuple[str, PathNames]:
    if not cursor:
        return "", ()
    token, _, encoded = cursor.rpartition(".")
    try:
        return token, tuple(os.fsdecode(base64.b64decode(encoded, b"-_", validate=True)).split("/"))
    except (binascii.Error, ValueError):
        raise RookeryError("invalid-input", "invalid cursor", "leave it out to start from the beginning") from None
