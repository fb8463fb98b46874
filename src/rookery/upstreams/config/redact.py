"""Server definitions and texts about servers, without secrets."""

import base64
import re
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from rookery.system.log import REDACTOR, Redactor
from rookery.upstreams.config.definition import Definition

HIDDEN = "(hidden)"

_SECRET_NAME = re.compile(r"token|secret|passw|pwd|key|auth|credential|bearer", re.IGNORECASE)
# Keys that their issuers mark as such.
_TOKEN_SHAPE = re.compile(
    r"\b(gh[oprsu]_|github_pat_|glpat-|sk-|xox[abeprs]-|npm_|pypi-|hf_|AKIA|AIza|eyJ)[A-Za-z0-9_.-]{12,}"
)
_HEADER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*\Z")
_PLACEHOLDER = re.compile(r"\$?\{[^{}]+\}")

_VALUE_KEYS = ("headers", "environment", "env")
_WORD_KEYS = ("command", "args")
_REDACTED_KEYS = frozenset({*_VALUE_KEYS, *_WORD_KEYS, "oauth", "url"})


def redact_definition(definition: Definition) -> dict[str, Any]:
    """Return an entry as it is written in its file, with placeholders. Values of headers and variables are hidden."""
    written = dict(definition.written)
    for key in _VALUE_KEYS:
        if isinstance(written.get(key), dict):
            values = cast(dict[str, Any], written[key])
            written[key] = {name: value if _is_placeholder(value) else HIDDEN for name, value in values.items()}
    for key in _WORD_KEYS:
        if isinstance(written.get(key), list):
            written[key] = _redact_words(cast(list[Any], written[key]))
    if isinstance(written.get("oauth"), dict):
        settings = cast(dict[str, Any], written["oauth"])
        written["oauth"] = {
            key: HIDDEN if "secret" in key.lower() and not _is_placeholder(value) else value
            for key, value in settings.items()
        }
    if isinstance(written.get("url"), str):
        written["url"] = _redact_url(written["url"])
    written |= {key: _redact_option(key, value) for key, value in written.items() if key not in _REDACTED_KEYS}
    return {
        "kind": definition.kind,
        "source": str(definition.source),
        "dialect": definition.source.dialect,
        "scope": definition.scope,
        "digest": definition.digest,
        "written": written,
    }


class _ServerAndOwnRedactor(Redactor):
    """Also removes Rookery's own secrets, which include the tokens of sign-ins."""

    def clean(self, text: str) -> str:
        return REDACTOR.clean(super().clean(text))


def build_redactor(definition: Definition) -> Redactor:
    """Return a redactor for the values that a server gets in headers, in variables and by signing in."""
    redactor = _ServerAndOwnRedactor()
    oauth = definition.oauth or {}
    secrets = [value for key, value in oauth.items() if "secret" in key.lower() and isinstance(value, str)]
    secrets += _list_userinfo(definition.url)
    for value in (*definition.headers.values(), *definition.environment.values(), *secrets):
        # A server that repeats its token leaves out the "Bearer" before it.
        for part in (value, *value.split()):
            redactor.add(part)
    return redactor


def _list_userinfo(url: str) -> list[str]:
    """Return the credentials before the host of an address: as written, decoded, and as they are sent."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    names = [text for text in (parts.username, parts.password) if text]
    decoded = [unquote(text) for text in names]
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return [*names, *decoded, base64.b64encode(pair.encode()).decode()] if names else []


def _is_placeholder(value: Any) -> bool:
    """Return whether a value only names the variable or file of a secret, such as `Bearer {env:TOKEN}`."""
    rest, count = _PLACEHOLDER.subn("", str(value))
    return count > 0 and rest.strip().lower() in ("", "bearer", "basic", "token")


def _redact_option(name: str, value: Any) -> Any:
    """Return the value of an option without texts under names of secrets, at any depth."""
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)
        return {key: _redact_option(key, member) for key, member in members.items()}
    if isinstance(value, list):
        return [_redact_option(name, item) for item in cast(list[Any], value)]
    is_secret = isinstance(value, str) and _SECRET_NAME.search(name) and not _is_placeholder(value)
    return HIDDEN if is_secret else value


def _redact_words(words: list[Any]) -> list[Any]:
    """Return the words of a command without secrets.

    Hidden are words that follow `--token` or `--token=`, headers such as `Authorization: Bearer x`, and known keys.
    """
    redacted: list[Any] = []
    for at, word in enumerate(map(str, words)):
        before = str(words[at - 1]) if at else ""
        name, equals, value = word.partition("=")
        header, colon, content = (value if equals and name.startswith("-") else word).partition(":")
        if equals and _SECRET_NAME.search(name) and not _is_placeholder(value):
            redacted.append(f"{name}={HIDDEN}")
        elif colon and _HEADER_NAME.match(header) and _SECRET_NAME.search(header) and not _is_placeholder(content):
            option = f"{name}=" if equals and name.startswith("-") else ""
            redacted.append(f"{option}{header}: {HIDDEN}")
        elif before.startswith("-") and "=" not in before and _SECRET_NAME.search(before) and not word.startswith("-"):
            redacted.append(word if _is_placeholder(word) else HIDDEN)
        else:
            plain = _redact_url(word) if "://" in word else word
            shown = _TOKEN_SHAPE.sub(HIDDEN, plain)
            redacted.append(shown if shown != word else words[at])
    return redacted


def _redact_url(url: str) -> str:
    """Return an address without the credentials before its host, and without the secrets in its query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    _, at, host = parts.netloc.rpartition("@")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = parts.query
    if any(_SECRET_NAME.search(name) and not _is_placeholder(value) for name, value in pairs):
        query = "&".join(f"{name}={HIDDEN if _SECRET_NAME.search(name) else value}" for name, value in pairs)
    return urlunsplit(parts._replace(netloc=f"{HIDDEN}@{host}" if at else parts.netloc, query=query))
