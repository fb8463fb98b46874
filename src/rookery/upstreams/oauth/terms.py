"""The `oauth` settings of a server definition, in the field names of any dialect."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from rookery.system.errors import RookeryError
from rookery.upstreams.config.definition import Definition
from rookery.upstreams.oauth.callback import RedirectAddress
from rookery.upstreams.oauth.messages import Terms

# The names of each field in both generations of OpenCode and in Rookery.
FIELD_NAMES: Mapping[str, tuple[str, ...]] = {
    "client_id": ("clientId", "client_id"),
    "client_secret": ("clientSecret", "client_secret"),
    "scope": ("scope",),
    "redirect": ("redirectUri", "redirect_uri"),
    "port": ("callbackPort", "callback_port", "redirectPort", "redirect_port"),
    "issuer": ("issuer",),
    "document": ("clientMetadataUrl", "client_metadata_url"),
}
_SCOPES = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*")


def find_terms(definition: Definition) -> Terms | None:
    """Return the settings of a server, or None if sign-in is disabled or it has its own Authorization."""
    own = any(name.lower() == "authorization" for name in definition.headers) or "@" in urlsplit(definition.url).netloc
    if definition.kind != "remote" or definition.oauth is False or own:
        return None
    return parse_terms(definition.oauth or {})


def parse_terms(settings: Mapping[str, Any]) -> Terms:
    """Parse the settings. Raise if one is invalid; no error repeats a value, which may be a secret."""
    fields: dict[str, Any] = {}
    for field, names in FIELD_NAMES.items():
        values = [settings[name] for name in names if settings.get(name) is not None]
        if len(values) > 1:
            raise _invalid_field(names[0], "given only once")
        if values:
            fields[field] = values[0]
    for field, value in fields.items():
        if not isinstance(value, int if field == "port" else str) or isinstance(value, bool) or not value:
            raise _invalid_field(FIELD_NAMES[field][0], "a number" if field == "port" else "text")
    terms = Terms(**fields)
    if terms.port is not None and not 0 < terms.port < 65_536:
        raise _invalid_field("callbackPort", "a port, from 1 to 65535")
    if terms.scope is not None and not _SCOPES.fullmatch(terms.scope):
        raise _invalid_field("scope", "names separated by single spaces")
    if terms.client_secret is not None and terms.client_id is None:
        raise _invalid_field("clientSecret", "used with a clientId")
    if terms.issuer is not None and terms.client_id is None:
        raise _invalid_field("issuer", "used with a clientId of that issuer, or removed")
    if terms.redirect is not None:
        RedirectAddress.parse(terms.redirect)
    if terms.document is not None and not _is_document(terms.document):
        raise _invalid_field("clientMetadataUrl", "an https address with a path")
    return terms


def _is_document(url: str) -> bool:
    """Return whether this can be the address of a client metadata document."""
    parts = urlsplit(url)
    return parts.scheme == "https" and bool(parts.hostname) and parts.path not in ("", "/")


def _invalid_field(name: str, expected: str) -> RookeryError:
    return RookeryError("invalid-input", f'"{name}" of "oauth" must be {expected}', "correct the server's definition")
