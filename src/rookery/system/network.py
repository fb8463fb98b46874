"""Information about the network: the default route, reachability, and the holders of local TCP connections.

The route and the holders are read from the kernel; nothing is sent for them.
"""

import asyncio
import os
import socket
import struct
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psutil

_IPV4 = Path("/proc/net/route")
_IPV6 = Path("/proc/net/ipv6_route")
# Any destination, in hexadecimal, and the flag of a route that is up.
_ANY4 = "00000000"
_ANY6 = f"{'0' * 32} 00"
_UP = 0x1
_REJECT = 0x200
_CONNECT_SECONDS = 10.0
_PORTS = {"http": 80, "https": 443}

_PROC = Path("/proc")
# The kernel writes addresses as 32-bit words in the byte order of the machine.
_LOCALHOST = struct.pack("=I", struct.unpack("!I", socket.inet_aton("127.0.0.1"))[0])
# The prefix of an IPv4 address in the table of IPv6 sockets.
_MAPPED = "0000000000000000FFFF0000" if sys.byteorder == "little" else "00000000000000000000FFFF"


def has_default_route(ipv4: Path = _IPV4, ipv6: Path = _IPV6) -> bool:
    """Return whether there is a default route; True if that cannot be determined. Nothing is sent."""
    try:
        lines = ipv4.read_text(encoding="ascii").splitlines()[1:]
    except (OSError, ValueError):
        return True
    for line in lines:
        fields = line.split()
        if len(fields) > 3 and fields[1] == _ANY4 and int(fields[3], 16) & _UP:
            return True
    try:
        lines = ipv6.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return False
    for line in lines:
        flags = int(line.split()[8], 16) if line.startswith(_ANY6) else 0
        if flags & _UP and not flags & _REJECT:
            return True
    return False


async def explain_unreachable(url: str, seconds: float = _CONNECT_SECONDS) -> str:
    """Return why no connection to the server of a URL can be opened; empty if one can, or the URL is invalid."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return ""
    if not host or port is None:
        return ""
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"{host} did not respond within {seconds:g} s"
    except OSError as error:
        # For failed connections the event loop has messages of its own, which say less.
        has_own_text = error.errno is None or isinstance(error, socket.gaierror)
        return f"{host}: {error.strerror or error}" if has_own_text else f"{host}: {os.strerror(error.errno or 0)}"
    writer.close()
    return ""


def find_connection_holders(address: tuple[str, int], port: int) -> list[int] | None:
    """Return the processes of this user that hold the end at `address` of a connection to `port` of 127.0.0.1.

    None if no process is found: it has closed the connection, or does not show its files. Empty if the end belongs to
    another user.
    """
    if sys.platform != "linux":
        return _find_by_psutil(address, port)
    owner = _owner_and_inode(address, port)
    if owner is None:
        return None
    uid, inode = owner
    if uid != os.getuid():
        return []
    return [pid for pid in psutil.pids() if _has_open(pid, f"socket:[{inode}]")] or None


def _owner_and_inode(address: tuple[str, int], port: int) -> tuple[int, str] | None:
    """Return the owner and the inode of the socket at this end; None if no process holds it any more."""
    ipv4 = struct.pack("=I", struct.unpack("!I", socket.inet_aton(address[0]))[0]).hex().upper()
    localhost = _LOCALHOST.hex().upper()
    for table, prefix in (("tcp", ""), ("tcp6", _MAPPED)):
        wanted = [f"{prefix}{ipv4}:{address[1]:04X}", f"{prefix}{localhost}:{port:04X}"]
        try:
            lines = _PROC.joinpath("self", "net", table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            # A socket that its process has closed has inode 0, however long the connection lingers.
            if fields[1:3] == wanted and fields[9] != "0":
                return int(fields[7]), fields[9]
    return None


def _has_open(pid: int, link: str) -> bool:
    """Return whether a process has a file descriptor that links to `link`."""
    folder = f"/proc/{pid}/fd"
    try:
        handles = os.listdir(folder)  # noqa: PTH208 - of all processes of a machine, while others wait for this one
    except OSError:
        return False
    for handle in handles:
        try:
            if os.readlink(f"{folder}/{handle}") == link:  # noqa: PTH115
                return True
        except OSError:
            continue
    return False


def _find_by_psutil(address: tuple[str, int], port: int) -> list[int] | None:
    pids: list[int] = []
    for process in psutil.process_iter():
        try:
            connections = process.net_connections("tcp")
        except (psutil.Error, OSError):
            continue
        if any(
            connection.laddr[1:2] == address[1:2] and connection.raddr[1:2] == (port,) for connection in connections
        ):
            pids.append(process.pid)
    return pids or None
