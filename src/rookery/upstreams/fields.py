"""The members of an entry, taken as what they are to be, or refused with where they stand."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from rookery.upstreams.jsonc import Object
from rookery.upstreams.substitute import Unfit

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_URL = re.compile(r"[^\x00-\x20\x7f]+")


class Fields:
    """What is said of one server. `null` is as good as nothing. Messages never repeat a value: it may be a secret."""

    def __init__(self, node: Object, values: Mapping[str, Any]) -> None:
        self._node = node
        self._values = {key: value for key, value in values.items() if value is not None}

    def __contains__(self, key: str) -> bool:
        return key in self._values

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._values)

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def at(self, key: str = "") -> int:
        """Where a member stands, or else the entry."""
        member = self._node.get(key)
        return member.start if member else self._node.start

    def unfit(self, key: str, expected: str) -> Unfit:
        return Unfit(f'"{key}" is to be {expected}', self.at(key))

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str | None) or "\0" in (value or ""):
            raise self.unfit(key, "text")
        return value or ""

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.get(key)
        if not isinstance(value, list | None):
            raise self.unfit(key, "a list of texts")
        items = cast("list[Any]", value or [])
        if not all(isinstance(item, str) and "\0" not in item for item in items):
            raise self.unfit(key, "a list of texts")
        return tuple(items)

    def record(self, key: str) -> dict[str, str]:
        value = self.get(key)
        if not isinstance(value, dict | None):
            raise self.unfit(key, "an object whose values are texts")
        found = cast("dict[str, Any]", value or {})
        for name, text in found.items():
            if not isinstance(text, str) or "\0" in text:
                raise self.unfit(key, f'an object whose values are texts; that of "{name}" is not, put it in quotes')
        return found

    def flag(self, key: str) -> bool | None:
        value = self.get(key)
        if not isinstance(value, bool | None):
            raise self.unfit(key, "true or false")
        return value

    def number(self, key: str, least: float, most: float, default: float) -> float:
        return within(self.get(key), least, most, default, self.unfit(key, f"a number from {least:g} to {most:g}"))

    def whole(self, key: str, least: int, most: int, default: int) -> int:
        value = self.number(key, least, most, default)
        if value != int(value):
            raise self.unfit(key, "a whole number")
        return int(value)

    def choice(self, key: str, choices: Iterable[str]) -> Any:
        value = self.get(key)
        if value is not None and value not in choices:
            raise self.unfit(key, "one of " + ", ".join(choices))
        return value

    def environment(self, key: str) -> dict[str, str]:
        found = self.record(key)
        if any(not name or "=" in name or "\0" in name for name in found):
            raise self.unfit(key, 'an object of variables; a name is empty or has a "=" in it')
        return found

    def headers(self, key: str) -> dict[str, str]:
        found = self.record(key)
        for name, value in found.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise self.unfit(key, f"an object of HTTP headers; {name!r} has a character in it that none may have")
        return found

    def url(self, key: str) -> str:
        value = self.text(key)
        try:
            parts = urlsplit(value)
            fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            fits = False
        if not fits or not _URL.fullmatch(value):
            raise self.unfit(key, "an address that begins with http:// or https://")
        return value


def within(value: Any, least: float, most: float, default: float, unfit: Unfit) -> float:
    """A number within bounds; `true` is none, whatever Python thinks."""
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise unfit
    return value
