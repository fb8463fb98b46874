"""Requests to one URL as bytes: everything that stays the same is written once."""

import base64
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

import rookery

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_UNSAFE = re.compile(r"[\r\n\0]")
# How a message is framed is ours to say, whatever somebody configured.
_OURS = frozenset(
    {"accept-encoding", "connection", "content-length", "expect", "keep-alive", "te", "transfer-encoding", "upgrade"}
)
_PORTS = {"http": 80, "https": 443}
# What may stand in a path or query as it is, what is encoded already included.
_KEPT = "/?:@!$&'()*+,;=-._~%[]"
_HEADS_KEPT = 100


class Place(NamedTuple):
    """Where a server listens; requests to the same place share connections."""

    tls: bool
    host: str
    port: int


class Requests:
    """Requests to `url` with `headers`. Raises ValueError where these cannot be."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError(f"{url[:200]!r} is not a URL of a server")
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
        self.place = Place(parts.scheme == "https", host, parts.port or _PORTS[parts.scheme])
        self._path = quote(parts.path or "/", _KEPT) + (f"?{quote(parts.query, _KEPT)}" if parts.query else "")
        address = f"[{host.partition('%')[0]}]" if ":" in host else host
        self._fixed = {
            "host": ("Host", address if self.place.port == _PORTS[parts.scheme] else f"{address}:{self.place.port}"),
            "user-agent": ("User-Agent", f"rookery/{rookery.__version__}"),
        }
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._fixed["authorization"] = "Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"
        for name, value in headers.items():
            _check(name, value)
            if name.lower() not in _OURS:
                self._fixed[name.lower()] = name, value
        self._heads: dict[tuple[str, ...], bytes] = {}

    def write(self, method: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
        """A whole request. `headers` stand instead of those that are always sent."""
        key = (method, *headers)
        if (head := self._heads.get(key)) is None:
            head = self._head(method, headers)
        if _UNSAFE.search("".join(headers.values())):
            raise ValueError("a header must not have more than one line")
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode()
        if body is None:
            return b"%b%b\r\n" % (head, lines)
        return b"%b%bContent-Length: %d\r\n\r\n%b" % (head, lines, len(body), body)

    def _head(self, method: str, names: Iterable[str]) -> bytes:
        """What comes before the headers of these names."""
        for name in names:
            _check(name, "")
        replaced = {name.lower() for name in names}
        kept = [pair for name, pair in self._fixed.items() if name not in replaced]
        lines = [f"{name}: {value}\r\n" for name, value in (*kept, ("Accept-Encoding", "identity"))]
        made = f"{method} {self._path} HTTP/1.1\r\n{''.join(lines)}".encode()
        if len(self._heads) >= _HEADS_KEPT:
            self._heads.clear()
        self._heads[method, *names] = made
        return made


def _check(name: str, value: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:200]!r} cannot be the name of a header")
    if _UNSAFE.search(value):
        # It is often a secret, and not told.
        raise ValueError(f"the header {name} must not have more than one line")
