"""Requests to one URL as bytes. The parts that do not change are encoded once."""

import base64
import re
from collections.abc import Iterable, Mapping
from copy import copy
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

import rookery

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_UNSAFE = re.compile(r"[\r\n\0]")
# The client itself decides how a message is framed, so these headers cannot be configured.
_RESERVED_HEADERS = frozenset(
    {"accept-encoding", "connection", "content-length", "expect", "keep-alive", "te", "transfer-encoding", "upgrade"}
)
_PORTS = {"http": 80, "https": 443}
# Characters that are not quoted in a path or query, including those of quoted ones.
_UNQUOTED = "/?:@!$&'()*+,;=-._~%[]"
_MAX_CACHED_HEADS = 100


class HttpOrigin(NamedTuple):
    """The scheme, host and port of a server. Requests to the same origin share connections."""

    tls: bool
    host: str
    port: int


class HttpRequestWriter:
    """Encodes requests to `url` with `headers`. Raises ValueError if one of these is invalid."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self.origin = read_origin(parts)
        self._path = _read_path(parts)
        self.url = url
        host = self.origin.host
        address = f"[{host.partition('%')[0]}]" if ":" in host else host
        self._fixed = {
            "host": ("Host", address if self.origin.port == _PORTS[parts.scheme] else f"{address}:{self.origin.port}"),
            "user-agent": ("User-Agent", f"rookery/{rookery.__version__}"),
        }
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._fixed["authorization"] = "Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"
        for name, value in headers.items():
            _check_header(name, value)
            if name.lower() not in _RESERVED_HEADERS:
                self._fixed[name.lower()] = name, value
        self._heads: dict[tuple[str, ...], bytes] = {}

    def write(self, method: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
        """Return a whole request. `headers` replace fixed headers of the same name."""
        head = self.write_head(method, headers)
        if body is None:
            return b"%b\r\n" % head
        return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)

    def write_head(self, method: str, headers: Mapping[str, str]) -> bytes:
        """Return the head of such a request, without its end and the length of its body."""
        key = (method, *headers)
        if (head := self._heads.get(key)) is None:
            head = self._head(method, headers)
        if _UNSAFE.search("".join(headers.values())):
            raise ValueError("the value of a header must not contain a line break")
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode()
        return b"%b%b" % (head, lines)

    def at(self, location: str) -> "HttpRequestWriter | None":
        """Return the writer for a redirect to `location`, None if that is another origin or no URL.

        It has the same headers, so it must not be used for another origin.
        """
        try:
            url = urljoin(self.url, location)
            parts = urlsplit(url)
            if read_origin(parts) != self.origin:
                return None
        except ValueError:
            return None
        redirected = copy(self)
        redirected.url = url
        redirected._path = _read_path(parts)
        redirected._heads = {}
        return redirected

    def _head(self, method: str, names: Iterable[str]) -> bytes:
        """Return the request line and the fixed headers, except those with these names."""
        for name in names:
            _check_header(name, "")
        replaced = {name.lower() for name in names}
        fixed = [pair for name, pair in self._fixed.items() if name not in replaced]
        lines = [f"{name}: {value}\r\n" for name, value in (*fixed, ("Accept-Encoding", "identity"))]
        head = f"{method} {self._path} HTTP/1.1\r\n{''.join(lines)}".encode()
        if len(self._heads) >= _MAX_CACHED_HEADS:
            self._heads.clear()
        self._heads[method, *names] = head
        return head


def read_origin(parts: SplitResult) -> HttpOrigin:
    """Return the origin of a URL. Raise ValueError if it is not a URL of HTTP."""
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{parts.geturl()[:200]!r} is not a valid http or https URL")
    host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    return HttpOrigin(parts.scheme == "https", host, parts.port or _PORTS[parts.scheme])


def strip_userinfo(url: str) -> str:
    """Return a URL without the credentials before its host, for messages."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _read_path(parts: SplitResult) -> str:
    return quote(parts.path or "/", _UNQUOTED) + (f"?{quote(parts.query, _UNQUOTED)}" if parts.query else "")


def _check_header(name: str, value: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:200]!r} is not a valid header name")
    if _UNSAFE.search(value):
        # The value is often a secret, so the message does not contain it.
        raise ValueError(f"the value of the header {name} must not contain a line break")
