"""OAuth metadata and scopes: checks of the metadata that servers publish, and the scopes to request.

Only the scopes that a server names are requested, and never a wildcard. The daemon imports this module, which
therefore imports neither the SDK nor its HTTP client.
"""

import json
import re
from typing import Any, cast

from rookery.system.errors import RookeryError
from rookery.upstreams.oauth.addresses import AddressRules

CLIENT_REGISTRATION_HELP = (
    "register a client with its operator, and add the client's id to the server's definition: "
    '"oauth": {"clientId": "...", "clientSecret": "{env:NAME}"}'
)

# Addresses that a person's browser is sent to, or that requests are sent to.
_ADDRESS_KEYS = (
    "authorization_endpoint",
    "token_endpoint",
    "registration_endpoint",
    "revocation_endpoint",
    "issuer",
    "resource",
)

# A scope according to RFC 6749, but without wildcards.
_SCOPE = re.compile(r"[\x21\x23-\x29\x2b-\x5b\x5d-\x7e]+")
_CHALLENGE_SCOPE = re.compile(r'(?<![\w-])scope=(?:"([^"]*)"|([^\s,]+)),?\s*')


def check_metadata(body: bytes, rules: AddressRules) -> None:
    """Raise if metadata names an address that must not be used, or does not support PKCE with S256 (RFC 7636)."""
    try:
        decoded: Any = json.loads(body)
    except ValueError:
        return
    if not isinstance(decoded, dict):
        return
    document = cast(dict[str, Any], decoded)
    value = document.get("authorization_servers")
    servers = cast(list[Any], value) if isinstance(value, list) else []
    for address in [*(document.get(name) for name in _ADDRESS_KEYS), *servers]:
        if isinstance(address, str):
            rules.check(address)
    methods = document.get("code_challenge_methods_supported")
    # Since 2025-11-25 a server must declare its support: one without it would silently ignore the challenge.
    if "authorization_endpoint" in document and not (isinstance(methods, list) and "S256" in methods):
        raise RookeryError(
            "sign-in-failed",
            "the authorization server does not declare PKCE with S256; without it, codes can be stolen",
            "ask its operator to list S256 in code_challenge_methods_supported of its metadata",
        )


def filter_scopes(scopes: str) -> str:
    """Return the valid scopes of a list, without wildcards."""
    return " ".join(scope for scope in scopes.split() if _SCOPE.fullmatch(scope))


def set_challenge_scope(header: str, configured: str | None, *, stepping_up: bool) -> str:
    """Return a server's WWW-Authenticate header with the scopes to request; configured scopes replace the server's.

    A server that requires more than was granted (`stepping_up`) gets both.
    """
    match = _CHALLENGE_SCOPE.search(header)
    scopes = filter_scopes((match[1] or match[2] or "") if match else "")
    if configured is not None:
        scopes = f"{configured} {scopes}" if stepping_up else configured
    rest = _CHALLENGE_SCOPE.sub("", header).strip().rstrip(",")
    scope = " ".join(dict.fromkeys(scopes.split()))
    if not scope:
        return rest
    scheme, _, others = rest.partition(" ") if rest else ("Bearer", "", "")
    return f'{scheme} scope="{scope}"' + (f", {others}" if others else "")


def remove_wildcard_scopes(body: bytes) -> bytes:
    """Return the metadata of a server without wildcard scopes.

    The SDK requests these scopes if the server's challenge names none.
    """
    document = _decode_object(body)
    scopes = document.get("scopes_supported")
    if not isinstance(scopes, list):
        return body
    allowed = [scope for scope in cast(list[Any], scopes) if isinstance(scope, str) and filter_scopes(scope) == scope]
    return json.dumps(document | {"scopes_supported": allowed or None}).encode()


def remove_scopes(body: bytes) -> bytes:
    """Return the metadata of an issuer without its scopes.

    It is used if the server names no scopes: all scopes of the issuer would be far too many.
    """
    document = _decode_object(body)
    document.pop("scopes_supported", None)
    return json.dumps(document).encode() if document else body


def _decode_object(body: bytes) -> dict[str, Any]:
    try:
        decoded: Any = json.loads(body)
    except ValueError:
        return {}
    return cast(dict[str, Any], decoded) if isinstance(decoded, dict) else {}
