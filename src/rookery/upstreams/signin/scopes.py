"""Which scopes are asked for: those that the server asks for, no more, and never everything at once."""

import json
import re
from typing import Any, cast

# A scope as RFC 6749 has it, and none that stands for all others.
_SCOPE = re.compile(r"[\x21\x23-\x29\x2b-\x5b\x5d-\x7e]+")
_OF_CHALLENGE = re.compile(r'(?<![\w-])scope=(?:"([^"]*)"|([^\s,]+)),?\s*')


def modest(scopes: str) -> str:
    """Without wildcards, and without what is no scope."""
    return " ".join(scope for scope in scopes.split() if _SCOPE.fullmatch(scope))


def challenge_with(header: str, configured: str | None, *, stepping_up: bool) -> str:
    """A server's WWW-Authenticate with the scopes that are asked for: the user's own count before the server's.

    A server that wants more than was granted is given both.
    """
    found = _OF_CHALLENGE.search(header)
    wanted = modest((found[1] or found[2] or "") if found else "")
    if configured is not None:
        wanted = f"{configured} {wanted}" if stepping_up else configured
    rest = _OF_CHALLENGE.sub("", header).strip().rstrip(",")
    scope = " ".join(dict.fromkeys(wanted.split()))
    if not scope:
        return rest
    scheme, _, others = rest.partition(" ") if rest else ("Bearer", "", "")
    return f'{scheme} scope="{scope}"' + (f", {others}" if others else "")


def without_wildcards(body: bytes) -> bytes:
    """Metadata of a server, whose list of scopes is asked for where it demands none by name."""
    found = _object(body)
    scopes = found.get("scopes_supported")
    if not isinstance(scopes, list):
        return body
    kept = [one for one in cast(list[Any], scopes) if isinstance(one, str) and modest(one) == one]
    return json.dumps(found | {"scopes_supported": kept or None}).encode()


def only_offline(body: bytes) -> bytes:
    """Metadata of an issuer whose server names no scopes: all that the issuer knows would be far too many."""
    found = _object(body)
    found.pop("scopes_supported", None)
    return json.dumps(found).encode() if found else body


def _object(body: bytes) -> dict[str, Any]:
    try:
        found: Any = json.loads(body)
    except ValueError:
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}
