"""Identifiers and secrets, all from the operating system's random source."""

import hashlib
import re
import secrets
from collections.abc import Collection, Iterable
from pathlib import Path

from rookery.system.errors import RookeryError

# The error for an ambiguous prefix lists at most this many ids.
_MAX_LISTED = 10
_TOKEN = re.compile(r"rk_[A-Za-z0-9_-]{43}")


def new_id() -> str:
    """Return a random id of 128 bits."""
    return secrets.token_hex(16)


def new_token() -> str:
    """Return a bearer token of 256 bits, with a prefix by which leak scanners and people recognise it."""
    return "rk_" + secrets.token_urlsafe(32)


def is_token(text: str) -> bool:
    """Return whether a text has the form and length of a token; anything shorter could be guessed."""
    return _TOKEN.fullmatch(text) is not None


def project_id(path: Path) -> str:
    """Return the id of a project folder: `<folder>-<first 8 hex digits of sha256(real path)>`."""
    real = path.resolve()
    return f"{real.name or 'root'}-{hashlib.sha256(str(real).encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def match_prefix(prefix: str, ids: Iterable[str], plural_noun: str) -> str | None:
    """Return the id that equals `prefix`, or the only one that starts with it; None if there is none.

    `plural_noun` is the plural noun for the error that is raised if several ids match.
    """
    distinct = dict.fromkeys(ids)
    if prefix in distinct:
        return prefix
    matches = [id_ for id_ in distinct if prefix and id_.startswith(prefix)]
    if len(matches) > 1:
        raise ambiguous_id_error(prefix, matches, plural_noun)
    return matches[0] if matches else None


def ambiguous_id_error(prefix: str, matches: Collection[str], plural_noun: str) -> RookeryError:
    """Return the error for a prefix that matches several ids."""
    listed = [*matches][:_MAX_LISTED]
    more = f" and {len(matches) - len(listed)} more" if len(matches) > len(listed) else ""
    message = f"{prefix} matches {len(matches)} {plural_noun}"
    return RookeryError("ambiguous-id", message, f"use a longer prefix: {', '.join(listed)}{more}")
