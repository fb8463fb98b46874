"""The proxies that the environment names for requests: HTTP_PROXY, HTTPS_PROXY and NO_PROXY.

Requests to this machine never use a proxy.
"""

import base64
import contextlib
import ipaddress
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from rookery.wire.http_client.request import HttpOrigin

_DEFAULT_PORT = 80
_SEPARATORS = re.compile(r"[,\s]+")
# An address of IPv6 with a port is in brackets.
_PORT = re.compile(r"([^:]+|\[.*\]):(\d+)")


class Proxy(NamedTuple):
    """An HTTP proxy. `authorization` is the value of the header for the proxy itself, if it wants one."""

    host: str
    port: int
    authorization: str | None = None

    def __repr__(self) -> str:
        """Return the address without credentials."""
        return _format_address(self.host, self.port)

    def write_connect(self, origin: HttpOrigin) -> bytes:
        """Return the request for a tunnel to `origin`. It contains nothing of the requests in the tunnel."""
        target = _format_address(origin.host, origin.port)
        return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{self._header()}\r\n".encode()

    def rewrite(self, origin: HttpOrigin, request: bytes) -> bytes:
        """Return a request to an origin without TLS as a proxy wants it: with the whole URL in its first line."""
        method, _, rest = request.partition(b" ")
        line, _, rest = rest.partition(b"\r\n")
        address = _format_address(origin.host, origin.port).removesuffix(":80").encode()
        return b"%b http://%b%b\r\n%b%b" % (method, address, line, self._header().encode(), rest)

    def _header(self) -> str:
        return f"Proxy-Authorization: {self.authorization}\r\n" if self.authorization is not None else ""


class ProxySettings(msgspec.Struct, frozen=True):
    """The proxies for http and https, and the hosts that are reached without; each as in the environment."""

    http: str = ""
    https: str = ""
    bypass: str = ""

    def __repr__(self) -> str:
        """Return a text without the credentials of the proxies."""
        return f"<ProxySettings http={bool(self.http)} https={bool(self.https)}>"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "ProxySettings":
        """Return the settings of an environment. Names in lower case take precedence, as with other programs."""

        def read(name: str) -> str:
            return environment.get(name, environment.get(name.upper(), "")).strip()

        return cls(read("http_proxy"), read("https_proxy"), read("no_proxy"))

    def find(self, origin: HttpOrigin) -> Proxy | None:
        """Return the proxy for an origin, or None. Raise ValueError if the configured one cannot be used."""
        url = self.https if origin.tls else self.http
        if not url or is_local(origin.host) or any(_covers(entry, origin) for entry in _SEPARATORS.split(self.bypass)):
            return None
        return _parse(url, "HTTPS_PROXY" if origin.tls else "HTTP_PROXY")


def is_local(host: str) -> bool:
    """Return whether a host is this machine by its name or its number."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _parse_number(host)
    return address is not None and (address.is_loopback or address.is_unspecified)


def _parse(url: str, variable: str) -> Proxy:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    host = parts.hostname
    port = None
    with contextlib.suppress(ValueError):
        port = parts.port or _DEFAULT_PORT
    if parts.scheme != "http":
        raise ValueError(f"{variable} names a proxy of the type {parts.scheme}, which is not supported: use http://")
    if not host or port is None:
        raise ValueError(f"{variable} is not the address of a proxy")
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Proxy(host, port, authorization)


def _covers(entry: str, origin: HttpOrigin) -> bool:
    """Return whether an entry of NO_PROXY covers an origin: `*`, a domain, a number or a network, perhaps a port."""
    if not entry or entry == "*":
        return entry == "*"
    if (match := _PORT.fullmatch(entry)) is not None:
        if int(match[2]) != origin.port:
            return False
        entry = match[1]
    entry = entry.strip("[]").lower()
    host = origin.host.lower().rstrip(".")
    if (address := _parse_number(host)) is not None:
        try:
            return address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name = entry.removeprefix("*").removeprefix(".").rstrip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _parse_number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _format_address(host: str, port: int) -> str:
    return f"[{host.partition('%')[0]}]:{port}" if ":" in host else f"{host}:{port}"
