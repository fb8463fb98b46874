"""What servers say of themselves for a sign-in, looked at before it is believed."""

import json
from typing import Any, cast

from rookery.system.errors import RookeryError
from rookery.upstreams.signin.addresses import Rules

HOW_TO_GIVE_A_CLIENT = (
    "register a client with whoever runs it, and put its id into the server's definition: "
    '"oauth": {"clientId": "...", "clientSecret": "{env:NAME}"}'
)

# What a person's browser would be sent to, or we would send something to.
_ADDRESSES = (
    "authorization_endpoint",
    "token_endpoint",
    "registration_endpoint",
    "revocation_endpoint",
    "issuer",
    "resource",
)


def check(body: bytes, rules: Rules) -> None:
    """Raise where metadata names an address that must not be used, or cannot protect a code (RFC 7636)."""
    try:
        found: Any = json.loads(body)
    except ValueError:
        return
    if not isinstance(found, dict):
        return
    said = cast(dict[str, Any], found)
    listed = said.get("authorization_servers")
    servers = cast(list[Any], listed) if isinstance(listed, list) else []
    for one in [*(said.get(name) for name in _ADDRESSES), *servers]:
        if isinstance(one, str):
            rules.check(one)
    methods = said.get("code_challenge_methods_supported")
    # Whoever does not say that it can is taken not to, since 2025-11-25: it would pass over the challenge in silence.
    if "authorization_endpoint" in said and not (isinstance(methods, list) and "S256" in methods):
        raise RookeryError(
            "sign-in-failed",
            "the authorization server does not say that it can do PKCE with S256, without which codes can be stolen",
            "ask whoever runs it to name S256 in code_challenge_methods_supported of its metadata",
        )
