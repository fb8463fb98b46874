"""A definition for people to look at: everything that it says, and nothing that may be a secret."""

import re
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from rookery.system.log import REDACTOR, Redactor
from rookery.upstreams.definition import Definition

HIDDEN = "(hidden)"

_SECRET_NAME = re.compile(r"token|secret|passw|pwd|key|auth|credential|bearer", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\$?\{[^{}]+\}")


def shown(definition: Definition) -> dict[str, Any]:
    """What stands in its file, with placeholders as they were written; values of headers and variables are hidden."""
    written = dict(definition.written)
    for key in ("headers", "environment", "env"):
        if isinstance(written.get(key), dict):
            values = cast(dict[str, Any], written[key])
            written[key] = {name: value if _says_only_where(value) else HIDDEN for name, value in values.items()}
    for key in ("command", "args"):
        if isinstance(written.get(key), list):
            written[key] = _words(cast(list[Any], written[key]))
    if isinstance(written.get("oauth"), dict):
        said = cast(dict[str, Any], written["oauth"])
        written["oauth"] = {
            key: HIDDEN if "secret" in key.lower() and not _says_only_where(value) else value
            for key, value in said.items()
        }
    if isinstance(written.get("url"), str):
        written["url"] = _url(written["url"])
    return {
        "kind": definition.kind,
        "source": str(definition.source),
        "dialect": definition.source.dialect,
        "scope": definition.scope,
        "digest": definition.digest,
        "written": written,
    }


class _WithOurs(Redactor):
    """Strikes out our own secrets too, among which are the tokens that sign-ins came to."""

    def clean(self, text: str) -> str:
        return REDACTOR.clean(super().clean(text))


def redactor_for(definition: Definition) -> Redactor:
    """Strikes out of any text what this server was given in headers, variables and by signing in."""
    made = _WithOurs()
    oauth = definition.oauth or {}
    secrets = [value for key, value in oauth.items() if "secret" in key.lower() and isinstance(value, str)]
    for value in (*definition.headers.values(), *definition.environment.values(), *secrets):
        # A server that tells which token it got leaves out the "Bearer" before it.
        for part in (value, *value.split()):
            made.add(part)
    return made


def _says_only_where(value: Any) -> bool:
    """Whether it only names the variable or file that the secret is in, such as `Bearer {env:TOKEN}`."""
    rest, count = _PLACEHOLDER.subn("", str(value))
    return count > 0 and rest.strip().lower() in ("", "bearer", "basic", "token")


def _words(words: list[Any]) -> list[Any]:
    """The words of a command: what follows `--token`, or stands behind `--token=`, is hidden."""
    found: list[Any] = []
    for at, word in enumerate(map(str, words)):
        before = str(words[at - 1]) if at else ""
        name, equals, value = word.partition("=")
        if equals and _SECRET_NAME.search(name) and not _says_only_where(value):
            found.append(f"{name}={HIDDEN}")
        elif before.startswith("-") and "=" not in before and _SECRET_NAME.search(before) and not word.startswith("-"):
            found.append(word if _says_only_where(word) else HIDDEN)
        else:
            found.append(_url(word) if "://" in word else words[at])
    return found


def _url(url: str) -> str:
    """An address without the password in front of its host, and without what its query calls a secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    _, at, host = parts.netloc.rpartition("@")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = parts.query
    if any(_SECRET_NAME.search(name) and not _says_only_where(value) for name, value in pairs):
        query = "&".join(f"{name}={HIDDEN if _SECRET_NAME.search(name) else value}" for name, value in pairs)
    return urlunsplit(parts._replace(netloc=f"{HIDDEN}@{host}" if at else parts.netloc, query=query))
