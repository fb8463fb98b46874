"""Public names: made from a table, never taken apart again."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Prefix = Literal["always", "conflict", "never"]

LONGEST = 64
_HASH = 8
# What looks as if it had been marked is marked too, so that nobody can take a name that was marked for another.
_LIKE_MARKED = re.compile(rf".*_[0-9a-f]{{{_HASH}}}", re.DOTALL)
_LIKE_MARKED_SCHEME = re.compile(rf"s-.*-[0-9a-f]{{{_HASH}}}", re.DOTALL)
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_UNFIT_IN_SCHEME = re.compile(r"[^a-zA-Z0-9.-]")


@dataclass(frozen=True)
class Style:
    """How a view names what servers offer. `separator` "_" is how OpenCode itself names things."""

    prefix: Prefix = "always"
    separator: Literal["__", "_"] = "__"
    bare: bool = False


BARE = Style(prefix="never", bare=True)


@dataclass(frozen=True)
class Owned:
    """A name, and the provider it belongs to; `ours` is never given a prefix."""

    owner: str
    name: str
    ours: bool = False


Join = Callable[[str, str], tuple[str, bool]]


def public_names(offered: Sequence[Owned], style: Style) -> dict[str, Owned]:
    """Tools or prompts by their public names: unique, short enough, and the same whoever else is there."""
    if style.bare:
        return {one.name: one for one in reversed(offered)}
    return _table(offered, style, lambda owner, name: _joined(owner, name, style.separator), _bare)


def face_name(owner: str, name: str) -> str:
    """The name of a tool at the gateway's own face, which rules are about, whatever a view shows."""
    return next(iter(public_names([Owned(owner, name)], Style())))


def public_uris(offered: Sequence[Owned], style: Style) -> dict[str, Owned]:
    """Resources or templates by their public URIs: the server's name is put in front of the scheme."""
    if style.bare:
        return {one.name: one for one in reversed(offered)}
    return _table(offered, style, _joined_uri, lambda uri: (uri, True), longest=None)


def scheme_of(owner: str) -> str:
    """What stands in front of the URIs of one server; no two servers have the same."""
    fit = _UNFIT_IN_SCHEME.sub("-", owner)
    if fit != owner or fit != fit.lower() or not fit[:1].isalpha() or _LIKE_MARKED_SCHEME.fullmatch(fit):
        fit = f"s-{fit.lower()}-{_hash(owner)}"
    return f"{fit}+"


def _table(
    offered: Sequence[Owned],
    style: Style,
    joined: Join,
    bare: Callable[[str], tuple[str, bool]],
    longest: int | None = LONGEST,
) -> dict[str, Owned]:
    found: dict[str, Owned] = {}
    # Ours first: no server can take the name of something of ours.
    for one in sorted(offered, key=lambda one: (not one.ours, one.owner, one.name)):
        if one.ours:
            found.setdefault(one.name, one)
    theirs = sorted(_distinct(one for one in offered if not one.ours), key=lambda one: (one.owner, one.name))
    taken = Counter(bare(one.name)[0] for one in theirs)
    fronts = {one.owner: joined(one.owner, "")[0] for one in theirs}
    for one in theirs:
        name, clear = bare(one.name)
        conflict = taken[name] > 1 or name in found
        if style.prefix == "always" or conflict:
            name, clear = joined(one.owner, one.name)
        elif any(name.startswith(front) for owner, front in fronts.items() if owner != one.owner):
            # It looks as if it were another server's.
            clear = False
        if not clear or (longest is not None and len(name) > longest) or name in found:
            name = next(marked for marked in _marked(name, one, longest) if marked not in found)
        found[name] = one
    return found


def _distinct(offered: Iterable[Owned]) -> Iterable[Owned]:
    """A list that names one thing twice offers it once."""
    return dict.fromkeys(offered)


def _joined(owner: str, name: str, separator: str) -> tuple[str, bool]:
    """The joined name, and whether no other pair can give the same."""
    left, right = _UNFIT.sub("_", owner), _UNFIT.sub("_", name)
    whole = f"{left}{separator}{right}"
    if separator == "_":
        # OpenCode joins like this whatever comes of it; only a real clash is told apart.
        return whole, True
    clear = left == owner and right == name and whole.find(separator) == len(left)
    return whole, clear and not _LIKE_MARKED.fullmatch(whole)


def _bare(name: str) -> tuple[str, bool]:
    fit = _UNFIT.sub("_", name)
    return fit, fit == name


def _joined_uri(owner: str, uri: str) -> tuple[str, bool]:
    return scheme_of(owner) + uri, True


def _marked(name: str, one: Owned, longest: int | None) -> Iterator[str]:
    """The name with a mark that is made from where it leads to; a longer one for whoever met with the same."""
    for size in (_HASH, 2 * _HASH, 4 * _HASH):
        mark = "_" + _hash(f"{one.owner}\0{one.name}", size)
        yield (name if longest is None else name[: longest - len(mark)]) + mark


def _hash(text: str, size: int = _HASH) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:size]
