"""Rules for the addresses that a server names during a sign-in: which may be fetched or opened.

The standard library parses the numeric forms of addresses.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from rookery.system.errors import RookeryError
from rookery.wire.http_client.proxy import Proxy, ProxySettings
from rookery.wire.http_client.request import read_origin

AddressKind = Literal["public", "private", "loopback", "link-local", "reserved"]
# Returns the numeric addresses of a host.
Resolver = Callable[[str, int], Awaitable[list[str]]]

_FORBIDDEN = re.compile(r"""[\x00-\x20\x7f"'<>\\^`{|}]""")
_PORTS = {"http": 80, "https": 443}
_NO_PROXIES = ProxySettings()
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class AddressRefused(RookeryError):
    """An address that a sign-in must not use."""

    def __init__(self, url: str, why: str) -> None:
        message = f"the sign-in refers to an address that is not allowed: {url[:200]} {why}"
        super().__init__("address-refused", message, "if you trust this server, ask its operator to correct this")


async def resolve(host: str, port: int) -> list[str]:
    """Return the numeric addresses of a host. The system also resolves forms such as `0177.1` and `2130706433`."""
    results = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in results))


def classify_address(address: str) -> AddressKind:
    """Return the kind of an address. One that embeds another address counts as the embedded one."""
    ip = _unwrap(ipaddress.ip_address(address.partition("%")[0]))
    if ip.is_loopback:
        return "loopback"
    if ip.is_link_local:
        return "link-local"
    if ip.is_unspecified or ip.is_multicast or ip.is_reserved:
        return "reserved"
    if isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local:
        return "private"  # the predecessor of fc00::/7, which the library takes for public
    return "public" if ip.is_global else "private"


def _unwrap(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the IPv4 address that is embedded in an IPv6 address, or else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)


@dataclass(frozen=True)
class AddressRules:
    """The kinds of addresses that a sign-in may use: public ones, and the kind of the configured server itself.

    `allow_http` allows addresses without encryption. A proxy resolves names itself: what it may connect to is its own
    decision. A name that this machine can resolve too is checked all the same.
    """

    kinds: frozenset[AddressKind]
    allow_http: bool
    resolve: Resolver = resolve
    proxies: ProxySettings = _NO_PROXIES

    @classmethod
    async def for_server(
        cls, server: str, resolve: Resolver = resolve, proxies: ProxySettings = _NO_PROXIES
    ) -> "AddressRules":
        """Return the rules for a server that a user configured."""
        parts = urlsplit(server)
        host = parts.hostname or ""
        addresses = await _resolve_checked(resolve, host, parts, optional=_find_proxy(proxies, parts) is not None)
        kinds: set[AddressKind] = {classify_address(address) for address in addresses}
        allowed: set[AddressKind] = {"public"}
        local = _is_number(host) or host == "localhost" or host.endswith(".localhost")
        # A host name that resolves to this machine, to the metadata service of its cloud, or to addresses of
        # different kinds is a way to reach internal services from outside.
        if len(kinds) == 1 and (local or not kinds & {"loopback", "link-local", "reserved"}):
            allowed |= kinds
        return cls(frozenset(allowed), parts.scheme == "http", resolve, proxies)

    def proxy(self, url: str) -> Proxy | None:
        """Return the proxy for an address, or None."""
        return _find_proxy(self.proxies, urlsplit(url))

    def check(self, url: str) -> SplitResult:
        """Return the parts of an address whose form is allowed. `addresses` checks where it leads."""
        if _FORBIDDEN.search(url):
            raise AddressRefused(repr(url)[1:-1], "contains an invalid character")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise AddressRefused(url, "is not an address") from None
        if parts.scheme not in _PORTS or not parts.hostname or port == 0:
            raise AddressRefused(url, "is neither http nor https")
        if parts.scheme == "http" and not self.allow_http:
            raise AddressRefused(url, "is not encrypted, but the server's own address is")
        if "@" in parts.netloc:
            raise AddressRefused(url, "contains a user name or a password")
        return parts

    async def addresses(self, url: str) -> list[str]:
        """Return the numeric addresses to connect to. Raise if one of them is not allowed.

        There may be none if a proxy is used for this address.
        """
        parts = self.check(url)
        optional = _find_proxy(self.proxies, parts) is not None
        addresses = await _resolve_checked(self.resolve, parts.hostname or "", parts, optional=optional)
        for address in addresses:
            if (kind := classify_address(address)) not in self.kinds:
                raise AddressRefused(url, f"resolves to {address}, which is {kind}")
        return addresses


def _find_proxy(proxies: ProxySettings, parts: SplitResult) -> Proxy | None:
    try:
        return proxies.find(read_origin(parts))
    except ValueError as error:
        raise RookeryError("sign-in-failed", str(error)) from None


async def _resolve_checked(resolve: Resolver, host: str, parts: SplitResult, *, optional: bool) -> list[str]:
    """Return the numeric addresses of a host; with `optional` none if it cannot be resolved."""
    try:
        addresses = await resolve(host, parts.port or _PORTS.get(parts.scheme, 443))
    except (OSError, UnicodeError) as error:
        if optional:
            return []
        raise RookeryError("sign-in-failed", f"{host[:200]} cannot be resolved: {error}") from None
    if not addresses and not optional:
        raise RookeryError("sign-in-failed", f"{host[:200]} cannot be resolved")
    return addresses


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
