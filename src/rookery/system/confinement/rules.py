"""Turn a policy and what the kernel can do into rules. No I/O."""

import os
from dataclasses import dataclass
from pathlib import PurePosixPath

from rookery.system.confinement.policy import ConfinementPolicy
from rookery.system.confinement.seccomp import Architecture, build_filter

# Access rights of Landlock, in the order of their bits.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK = (1 << bit for bit in range(6, 12))
_MAKE_SYM, _REFER, _TRUNCATE, _IOCTL_DEV = (1 << bit for bit in range(12, 16))
_BIND_TCP = 1
_CONNECT_TCP = 2
_SCOPE_ABSTRACT_UNIX = 1
_SCOPE_SIGNAL = 2

# How many of these rights each ABI knows.
_RIGHTS_BY_ABI = (0, 13, 14, 15, 15, 16)
FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

_READ = _READ_FILE | _READ_DIR
_RUN = _READ | _EXECUTE
# Device nodes cannot be made: a root user's would open disks.
_CHANGE = _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SOCK | _MAKE_FIFO | _MAKE_SYM
_WRITE = _RUN | _CHANGE | _REFER | _TRUNCATE
# Without _REFER, since a folder with links in it could be moved here.
_LINKLESS = _WRITE & ~(_EXECUTE | _MAKE_SYM | _MAKE_SOCK | _MAKE_FIFO | _REFER)
_UNLISTED = _WRITE & ~_READ_DIR & ~_EXECUTE
_DEVICE = _READ_FILE | _WRITE_FILE | _IOCTL_DEV
# With any of these, an entry of a folder can be replaced by a link.
_REPLACE = _CHANGE & ~_WRITE_FILE | _REFER

# What is not enforced below each ABI.
_MISSING_BELOW = {
    3: "truncating a file by its path",
    4: "limits on TCP ports",
    5: "control calls on devices",
    6: "signals to other processes",
}


@dataclass(frozen=True)
class KernelSupport:
    """What the kernel can enforce: the ABI of Landlock (0 means none), and the architecture for seccomp."""

    abi: int
    architecture: Architecture | None


@dataclass(frozen=True)
class ConfinementRules:
    """Rules in the terms of the kernel. `missing` names what it cannot enforce.

    In `writable` folders the process can make and replace entries.
    """

    handled_files: int
    handled_ports: int
    scoped: int
    paths: tuple[tuple[str, int], ...]
    writable: frozenset[str]
    ports: tuple[tuple[int, int], ...]
    filter: bytes
    missing: tuple[str, ...]


def make_rules(policy: ConfinementPolicy, support: KernelSupport) -> ConfinementRules:
    """Return the rules that enforce `policy` as far as the kernel can."""
    known = (1 << _RIGHTS_BY_ABI[min(support.abi, len(_RIGHTS_BY_ABI) - 1)]) - 1
    rights: dict[str, int] = {}
    for paths, access in (
        (policy.read, _READ),
        (policy.execute, _RUN),
        (policy.write, _WRITE),
        (policy.linkless, _LINKLESS),
        (policy.unlisted, _UNLISTED),
        (policy.devices, _DEVICE),
    ):
        for path in paths:
            normal = os.path.normpath(path)
            rights[normal] = rights.get(normal, 0) | access
    # A process could replace a path in a folder that it may write to by a link, and so direct the rule of its next
    # start elsewhere. The rule of that folder covers the path already.
    writable = {path for path, access in rights.items() if access & _REPLACE}
    paths = {path: access & known for path, access in rights.items() if not _is_beneath(path, writable)}
    handled_ports, ports = _limit_ports(policy) if support.abi >= 4 else (0, ())
    scoped = _SCOPE_ABSTRACT_UNIX * (not policy.unix_sockets) | _SCOPE_SIGNAL * (not policy.signals)
    return ConfinementRules(
        handled_files=known,
        handled_ports=handled_ports,
        scoped=scoped if support.abi >= 6 else 0,
        paths=tuple(sorted(paths.items())),
        writable=frozenset(writable),
        ports=ports,
        filter=build_filter(
            support.architecture,
            network=policy.network,
            unix_sockets=policy.unix_sockets,
            limits_ports=policy.network and _limits_ports(policy),
        )
        if support.architecture is not None
        else b"",
        missing=list_missing(support, policy),
    )


def list_missing(support: KernelSupport, policy: ConfinementPolicy) -> tuple[str, ...]:
    """Return what of a policy the kernel cannot enforce."""
    missing = ["files"] if support.abi < 1 else []
    for abi, what in _MISSING_BELOW.items():
        if support.abi < abi and not (abi == 6 and policy.signals) and not (abi == 4 and not _limits_ports(policy)):
            missing.append(what)
    if support.architecture is None:
        missing += [] if policy.unix_sockets else ["Unix sockets"]
        missing += [] if policy.network else ["UDP"]
        missing.append("io_uring, keys of the kernel and input to terminals")
    return tuple(missing)


def _limits_ports(policy: ConfinementPolicy) -> bool:
    return not policy.network or policy.connect_ports is not None or policy.bind_ports is not None


def _limit_ports(policy: ConfinementPolicy) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return the rights to TCP ports that are limited, and the rights to each allowed port."""
    allowed: dict[int, int] = {}
    handled = 0
    for right, ports in ((_CONNECT_TCP, policy.connect_ports), (_BIND_TCP, policy.bind_ports)):
        if policy.network and ports is None:
            continue
        handled |= right
        for port in (ports or ()) if policy.network else ():
            allowed[port] = allowed.get(port, 0) | right
    return handled, tuple(sorted(allowed.items()))


def _is_beneath(path: str, folders: set[str]) -> bool:
    return any(str(parent) in folders for parent in PurePosixPath(path).parents)
