"""What a definition says about signing in, in the words of any dialect."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from rookery.system.errors import RookeryError
from rookery.upstreams.definition import Definition
from rookery.upstreams.signin.callback import Place
from rookery.upstreams.signin.messages import Terms

# The names that OpenCode's two generations and we have for the same thing.
NAMES: Mapping[str, tuple[str, ...]] = {
    "client_id": ("clientId", "client_id"),
    "client_secret": ("clientSecret", "client_secret"),
    "scope": ("scope",),
    "redirect": ("redirectUri", "redirect_uri"),
    "port": ("callbackPort", "callback_port", "redirectPort", "redirect_port"),
    "issuer": ("issuer",),
    "document": ("clientMetadataUrl", "client_metadata_url"),
}
_SCOPES = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*")


def terms_of(definition: Definition) -> Terms | None:
    """None where it does not sign in: it is told not to, or has an Authorization of its own."""
    own = any(name.lower() == "authorization" for name in definition.headers) or "@" in urlsplit(definition.url).netloc
    if definition.kind != "remote" or definition.oauth is False or own:
        return None
    return read_terms(definition.oauth or {})


def read_terms(said: Mapping[str, Any]) -> Terms:
    """Raises where something does not fit; a value is never repeated, it may be a secret."""
    found: dict[str, Any] = {}
    for field, names in NAMES.items():
        given = [said[name] for name in names if said.get(name) is not None]
        if len(given) > 1:
            raise _unfit(names[0], "said once only")
        if given:
            found[field] = given[0]
    for field, value in found.items():
        if not isinstance(value, int if field == "port" else str) or isinstance(value, bool) or not value:
            raise _unfit(NAMES[field][0], "a number" if field == "port" else "text")
    terms = Terms(**found)
    if terms.port is not None and not 0 < terms.port < 65_536:
        raise _unfit("callbackPort", "a port, from 1 to 65535")
    if terms.scope is not None and not _SCOPES.fullmatch(terms.scope):
        raise _unfit("scope", "names with one space between them")
    if terms.client_secret is not None and terms.client_id is None:
        raise _unfit("clientSecret", "with a clientId")
    if terms.issuer is not None and terms.client_id is None:
        raise _unfit("issuer", "with the clientId that is known there, or left out")
    if terms.redirect is not None:
        Place.of(terms.redirect)
    if terms.document is not None and not _is_document(terms.document):
        raise _unfit("clientMetadataUrl", "an https address with a path")
    return terms


def _is_document(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" and bool(parts.hostname) and parts.path not in ("", "/")


def _unfit(name: str, expected: str) -> RookeryError:
    return RookeryError("invalid-input", f'"{name}" of "oauth" is to be {expected}', "correct the server's definition")
