"""Public names of tools, prompts and resources: they are looked up in a table, and never parsed."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Prefix = Literal["always", "conflict", "never"]

MAX_LENGTH = 64
_HASH_LENGTH = 8
# A name that looks as if it had a hash gets one too, so that no name can imitate one with a hash.
_LOOKS_HASHED = re.compile(rf".*_[0-9a-f]{{{_HASH_LENGTH}}}", re.DOTALL)
_LOOKS_HASHED_SCHEME = re.compile(rf"s-.*-[0-9a-f]{{{_HASH_LENGTH}}}", re.DOTALL)
_EXPRESSION = re.compile(r"\{[^{}]*\}")
_INVALID = re.compile(r"[^a-zA-Z0-9_-]")
_INVALID_IN_SCHEME = re.compile(r"[^a-zA-Z0-9.-]")


@dataclass(frozen=True)
class NamingStyle:
    """How a view names what servers offer. The separator "_" is OpenCode's own style."""

    prefix: Prefix = "always"
    separator: Literal["__", "_"] = "__"
    bare: bool = False

    def may_own(self, owner: str, public: str) -> bool:
        """Return whether a tool or prompt of this name may be one that the server `owner` offers."""
        if self.bare or self.prefix != "always":
            return True
        prefix = _join(owner, "", self.separator)[0]
        # A hash may have replaced the end of it.
        return public.startswith(prefix[: MAX_LENGTH - _HASH_LENGTH - 1])


BARE = NamingStyle(prefix="never", bare=True)


@dataclass(frozen=True)
class OwnedName:
    """A name, and the provider it belongs to. Names that are `is_builtin` never get a prefix."""

    owner: str
    name: str
    is_builtin: bool = False


Join = Callable[[str, str], tuple[str, bool]]


def make_public_names(offered: Sequence[OwnedName], style: NamingStyle) -> dict[str, OwnedName]:
    """Return tools or prompts by public name: unique, short enough, and independent of other servers."""
    if style.bare:
        return {owned.name: owned for owned in reversed(offered)}
    return _build_names(offered, style, lambda owner, name: _join(owner, name, style.separator), _bare)


def gateway_name(owner: str, name: str) -> str:
    """Return the name of a tool at the gateway itself. Rules use this name, whatever a view shows."""
    return next(iter(make_public_names([OwnedName(owner, name)], NamingStyle())))


def make_public_uris(offered: Sequence[OwnedName], style: NamingStyle) -> dict[str, OwnedName]:
    """Return resources or templates by public URI: the server's name is put in front of the scheme."""
    if style.bare:
        return {owned.name: owned for owned in reversed(offered)}
    return _build_names(offered, style, _join_uri, lambda uri: (uri, True), max_length=None)


def uri_scheme(owner: str) -> str:
    """Return the prefix of the URIs of one server; no two servers have the same."""
    fit = _INVALID_IN_SCHEME.sub("-", owner)
    if fit != owner or fit != fit.lower() or not fit[:1].isalpha() or _LOOKS_HASHED_SCHEME.fullmatch(fit):
        fit = f"s-{fit.lower()}-{_hash(owner)}"
    return f"{fit}+"


def matches_template(template: str, uri: str) -> bool:
    """Return whether a URI may be an expansion of a template (RFC 6570). Values are not checked."""
    return _compile_template(template).fullmatch(uri) is not None


@lru_cache(maxsize=4096)
def _compile_template(template: str) -> re.Pattern[str]:
    """Return a pattern that searches each literal part once, and never backtracks into an earlier one."""
    literals = _EXPRESSION.split(template)
    operators = [match[1:2] for match in _EXPRESSION.findall(template)]
    pattern = re.escape(literals[0])
    for operator, literal in zip(operators, literals[1:], strict=True):
        inside = "." if operator in "+#/;?&." else "[^/?#]"
        pattern += f"(?>{inside}*?{re.escape(literal)})" if literal else f"{inside}*"
    return re.compile(pattern, re.DOTALL)


def _build_names(
    offered: Sequence[OwnedName],
    style: NamingStyle,
    join: Join,
    bare: Callable[[str], tuple[str, bool]],
    max_length: int | None = MAX_LENGTH,
) -> dict[str, OwnedName]:
    table: dict[str, OwnedName] = {}
    # Rookery's own names first, so that no server can take one of them.
    for owned in sorted(offered, key=lambda owned: (not owned.is_builtin, owned.owner, owned.name)):
        if owned.is_builtin:
            table.setdefault(owned.name, owned)
    foreign = sorted(
        _distinct(owned for owned in offered if not owned.is_builtin), key=lambda owned: (owned.owner, owned.name)
    )
    uses = Counter(bare(owned.name)[0] for owned in foreign)
    prefixes = {owned.owner: join(owned.owner, "")[0] for owned in foreign}
    for owned in foreign:
        name, unambiguous = bare(owned.name)
        conflict = uses[name] > 1 or name in table
        if style.prefix == "always" or conflict:
            name, unambiguous = join(owned.owner, owned.name)
        elif any(name.startswith(prefix) for owner, prefix in prefixes.items() if owner != owned.owner):
            # It looks like a name of another server.
            unambiguous = False
        if not unambiguous or (max_length is not None and len(name) > max_length) or name in table:
            name = next(candidate for candidate in _add_hashes(name, owned, max_length) if candidate not in table)
        table[name] = owned
    return table


def _distinct(offered: Iterable[OwnedName]) -> Iterable[OwnedName]:
    """Return each name once, even if a list has it twice."""
    return dict.fromkeys(offered)


def _join(owner: str, name: str, separator: str) -> tuple[str, bool]:
    """Return the joined name, and whether no other pair can give the same."""
    left = _INVALID.sub("_", owner)
    right = _INVALID.sub("_", name)
    joined = f"{left}{separator}{right}"
    if separator == "_":
        # OpenCode joins names like this in every case; only a real clash gets a hash.
        return joined, True
    unambiguous = left == owner and right == name and joined.find(separator) == len(left)
    return joined, unambiguous and not _LOOKS_HASHED.fullmatch(joined)


def _bare(name: str) -> tuple[str, bool]:
    fit = _INVALID.sub("_", name)
    return fit, fit == name


def _join_uri(owner: str, uri: str) -> tuple[str, bool]:
    return uri_scheme(owner) + uri, True


def _add_hashes(name: str, owned: OwnedName, max_length: int | None) -> Iterator[str]:
    """Yield the name with a hash of owner and name, and then with longer hashes in case of a clash."""
    for size in (_HASH_LENGTH, 2 * _HASH_LENGTH, 4 * _HASH_LENGTH):
        suffix = "_" + _hash(f"{owned.owner}\0{owned.name}", size)
        yield (name if max_length is None else name[: max_length - len(suffix)]) + suffix


def _hash(text: str, size: int = _HASH_LENGTH) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:size]
