"""Build the seccomp filter of a confined process. Landlock does not cover what it refuses.

Landlock up to ABI 7 lets a process connect to every Unix socket that has a path, such as those of Docker, an ssh agent
or a desktop session. The filter refuses to make such a socket. `socketpair` stays, since its ends reach nobody else.
"""

import platform
import struct
import sys
from dataclasses import dataclass

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050001  # with EPERM
# Offsets in `struct seccomp_data`; of an argument, the low half on a little-endian machine.
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _ARGUMENT_OFFSETS = 0, 4, (16, 24)
_X32_BIT = 0x40000000

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
# ioctl requests that type into a terminal, as if its user had.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C


@dataclass(frozen=True)
class Architecture:
    """The numbers of system calls on one kind of machine."""

    audit: int
    socket: int
    ioctl: int
    prlimit: int
    # io_uring performs operations that no filter sees. The others read the keys that the kernel holds for the user.
    refused: tuple[int, ...]
    has_x32: bool = False


ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, socket=41, ioctl=16, prlimit=302, refused=(425, 248, 249, 250), has_x32=True),
    "aarch64": Architecture(0xC00000B7, socket=198, ioctl=29, prlimit=261, refused=(425, 217, 218, 219)),
}


def find_architecture() -> Architecture | None:
    """Return the architecture of this process; None if no filter is known for it."""
    is_64_bit = sys.maxsize > 2**32 and sys.byteorder == "little"
    return ARCHITECTURES.get(platform.machine()) if is_64_bit else None


def build_filter(architecture: Architecture, *, network: bool, unix_sockets: bool) -> bytes:
    """Return the filter as an array of `struct sock_filter`.

    A refused call fails with EPERM, as if a permission were missing, so that programs can handle it.
    """
    families = [AF_NETLINK]
    families += [AF_INET, AF_INET6] if network else []
    families += [AF_UNIX] if unix_sockets else []
    # 32-bit and x32 calls have other numbers, and would pass the checks below.
    program = [
        *[(_LOAD, 0, 0, _ARCHITECTURE_OFFSET), (_IF_EQUAL, 1, 0, architecture.audit), (_RETURN, 0, 0, _REFUSE)],
        (_LOAD, 0, 0, _NUMBER_OFFSET),
    ]
    if architecture.has_x32:
        program += [(_IF_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _REFUSE)]
    for number in architecture.refused:
        program += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    program += _check_argument(architecture.socket, 0, families, allowed=True)
    program += _check_argument(architecture.ioctl, 1, [_TIOCSTI, _TIOCLINUX], allowed=False)
    # Limits of other processes: a low one would end them.
    program += _check_argument(architecture.prlimit, 0, [0], allowed=True)
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _check_argument(number: int, index: int, values: list[int], *, allowed: bool) -> list[tuple[int, int, int, int]]:
    """Return instructions that allow (or refuse) a call with one of `values` as argument, and do the opposite else.

    The number of the call is loaded before and after them.
    """
    matched, other = (_ALLOW, _REFUSE) if allowed else (_REFUSE, _ALLOW)
    block = [(_LOAD, 0, 0, _ARGUMENT_OFFSETS[index])]
    for value in values:
        block += [(_IF_EQUAL, 0, 1, value), (_RETURN, 0, 0, matched)]
    block.append((_RETURN, 0, 0, other))
    return [(_IF_EQUAL, 0, len(block), number), *block]
