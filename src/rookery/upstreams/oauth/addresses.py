"""Which addresses that a stranger names may be fetched or opened; the standard library reads their numbers."""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from rookery.system.errors import RookeryError

Kind = Literal["public", "private", "loopback", "link-local", "reserved"]
# The addresses of a host, as numbers.
Resolve = Callable[[str, int], Awaitable[list[str]]]

_NEVER = re.compile(r"""[\x00-\x20\x7f"'<>\\^`{|}]""")
_PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class AddressRefused(RookeryError):
    def __init__(self, url: str, why: str) -> None:
        told = f"the sign-in names an address that is not used: {url[:200]} {why}"
        super().__init__("address-refused", told, "if you trust this server, ask whoever runs it to correct that")


async def resolve(host: str, port: int) -> list[str]:
    """By the system, which also knows what `0177.1` and `2130706433` are: what comes back is a plain number."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def kind_of(address: str) -> Kind:
    """What sort of machine is behind an address; one that stands for another inside of it counts as that one."""
    found = _unwrapped(ipaddress.ip_address(address.partition("%")[0]))
    if found.is_loopback:
        return "loopback"
    if found.is_link_local:
        return "link-local"
    if found.is_unspecified or found.is_multicast or found.is_reserved:
        return "reserved"
    if isinstance(found, ipaddress.IPv6Address) and found.is_site_local:
        return "private"  # what private networks had before fc00::/7, which the library takes for public
    return "public" if found.is_global else "private"


def _unwrapped(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)


@dataclass(frozen=True)
class Rules:
    """What the configured server itself is, the addresses that it names may be too; anything else is public."""

    kinds: frozenset[Kind]
    plain: bool
    resolve: Resolve = resolve

    @classmethod
    async def of(cls, server: str, resolve: Resolve = resolve) -> "Rules":
        """The rules for a server that a user configured."""
        parts = urlsplit(server)
        host = parts.hostname or ""
        found = await _found(resolve, host, parts)
        kinds: set[Kind] = {kind_of(one) for one in found}
        allowed: set[Kind] = {"public"}
        local = _is_number(host) or host == "localhost" or host.endswith(".localhost")
        # A name that leads to this machine or to its cloud's metadata, or now here and now there, is how a stranger
        # reaches what is behind a wall.
        if len(kinds) == 1 and (local or not kinds & {"loopback", "link-local", "reserved"}):
            allowed |= kinds
        return cls(frozenset(allowed), parts.scheme == "http", resolve)

    def check(self, url: str) -> SplitResult:
        """The parts of an address that may be one; whether it leads where it may is for `addresses` to say."""
        if _NEVER.search(url):
            raise AddressRefused(repr(url)[1:-1], "has a character in it that none may have")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise AddressRefused(url, "is no address") from None
        if parts.scheme not in _PORTS or not parts.hostname or port == 0:
            raise AddressRefused(url, "is neither http nor https")
        if parts.scheme == "http" and not self.plain:
            raise AddressRefused(url, "is not encrypted, and its server's own address is")
        if "@" in parts.netloc:
            raise AddressRefused(url, "has a name or a password in it")
        return parts

    async def addresses(self, url: str) -> list[str]:
        """Where an address leads: numbers to connect to. Every one of them has to be allowed."""
        parts = self.check(url)
        found = await _found(self.resolve, parts.hostname or "", parts)
        for one in found:
            if (kind := kind_of(one)) not in self.kinds:
                raise AddressRefused(url, f"leads to {one}, which is {kind}")
        return found


async def _found(resolve: Resolve, host: str, parts: SplitResult) -> list[str]:
    try:
        found = await resolve(host, parts.port or _PORTS.get(parts.scheme, 443))
    except (OSError, UnicodeError) as error:
        raise RookeryError("sign-in-failed", f"no address of {host[:200]} is known: {error}") from None
    if not found:
        raise RookeryError("sign-in-failed", f"no address of {host[:200]} is known")
    return found


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
