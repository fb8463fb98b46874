"""Build the seccomp filter of a confined process. Landlock does not cover what it refuses.

Landlock up to ABI 7 lets a process connect to every Unix socket that has a path, such as those of Docker, an ssh agent
or a desktop session. The filter refuses to make such a socket. Pairs of connected streams stay, since their ends reach
nobody else; a datagram socket can send to any path.
"""

import platform
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass

_LOAD = 0x20
_AND = 0x54
_IF_EQUAL = 0x15
_IF_AT_LEAST = 0x35
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050001  # with EPERM
# Offsets in `struct seccomp_data`; of an argument, the low half on a little-endian machine.
_NUMBER_OFFSET = 0
_ARCHITECTURE_OFFSET = 4
_ARGUMENT_OFFSETS = (16, 24, 32, 40)
_X32_BIT = 0x40000000

_WHOLE_ARGUMENT = 0xFFFFFFFF

AF_UNIX = 1
AF_INET = 2
AF_INET6 = 10
AF_NETLINK = 16
SOCK_STREAM = 1
SOCK_SEQPACKET = 5
# The type of a socket, without the flags that can be given with it.
_SOCKET_TYPE = 0xF
# Protocols that connect to TCP ports without being TCP for Landlock: DCCP, SCTP, SMC, QUIC and multipath TCP.
_OTHER_PROTOCOLS = (33, 132, 256, 261, 262)
# Connects while it sends, and no rule of Landlock sees that.
_MSG_FASTOPEN = 0x20000000
# ioctl requests that type into a terminal, as if its user had.
_TIOCSTI = 0x5412
_TIOCLINUX = 0x541C


@dataclass(frozen=True)
class Architecture:
    """The numbers of system calls on one kind of machine."""

    audit: int
    socket: int
    socketpair: int
    ioctl: int
    prlimit: int
    # The calls that send, and which argument has the flags.
    send: tuple[tuple[int, int], ...]
    # io_uring performs operations that no filter sees. The keys are those that the kernel holds for the user.
    io_uring_setup: int
    keys: tuple[int, ...]
    # Shared memory, semaphores and message queues of System V, and queues of POSIX: those of the user's other programs
    # are in reach without a path, by a number.
    ipc: tuple[int, ...]
    has_x32: bool = False

    @property
    def refused(self) -> tuple[int, ...]:
        """Return the calls that are refused whatever their arguments."""
        return (self.io_uring_setup, *self.keys, *self.ipc)


ARCHITECTURES = {
    "x86_64": Architecture(
        0xC000003E,
        socket=41,
        socketpair=53,
        ioctl=16,
        prlimit=302,
        send=((44, 3), (46, 2), (307, 3)),
        io_uring_setup=425,
        keys=(248, 249, 250),
        ipc=(29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 220, 240, 241),
        has_x32=True,
    ),
    "aarch64": Architecture(
        0xC00000B7,
        socket=198,
        socketpair=199,
        ioctl=29,
        prlimit=261,
        send=((206, 3), (211, 2), (269, 3)),
        io_uring_setup=425,
        keys=(217, 218, 219),
        ipc=(180, 181, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196),
    ),
}


def find_architecture() -> Architecture | None:
    """Return the architecture of this process; None if no filter is known for it."""
    is_64_bit = sys.maxsize > 2**32 and sys.byteorder == "little"
    return ARCHITECTURES.get(platform.machine()) if is_64_bit else None


def build_filter(architecture: Architecture, *, network: bool, unix_sockets: bool, limits_ports: bool = False) -> bytes:
    """Return the filter as an array of `struct sock_filter`.

    With `limits_ports`, it refuses the ways to a TCP port that the limits of Landlock do not cover. A refused call
    fails with EPERM, as if a permission were missing, so that programs can handle it.
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
    if limits_ports:
        program += _refuse_values(architecture.socket, 2, _OTHER_PROTOCOLS)
        for number, index in architecture.send:
            program += _check_argument(number, index, [0], allowed=True, mask=_MSG_FASTOPEN)
    program += _check_argument(architecture.socket, 0, families, allowed=True)
    if not unix_sockets:
        kinds = [SOCK_STREAM, SOCK_SEQPACKET]
        program += _check_argument(architecture.socketpair, 1, kinds, allowed=True, mask=_SOCKET_TYPE)
    program += _check_argument(architecture.ioctl, 1, [_TIOCSTI, _TIOCLINUX], allowed=False)
    # Limits of other processes: a low one would end them.
    program += _check_argument(architecture.prlimit, 0, [0], allowed=True)
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _refuse_values(number: int, index: int, values: Iterable[int]) -> list[tuple[int, int, int, int]]:
    """Return instructions that refuse a call with one of `values` as argument, and go on else."""
    block = [(_LOAD, 0, 0, _ARGUMENT_OFFSETS[index])]
    for value in values:
        block += [(_IF_EQUAL, 0, 1, value), (_RETURN, 0, 0, _REFUSE)]
    block.append((_LOAD, 0, 0, _NUMBER_OFFSET))
    return [(_IF_EQUAL, 0, len(block), number), *block]


def _check_argument(
    number: int, index: int, values: list[int], *, allowed: bool, mask: int = _WHOLE_ARGUMENT
) -> list[tuple[int, int, int, int]]:
    """Return instructions that allow (or refuse) a call with one of `values` as argument, and do the opposite else.

    Only the bits in `mask` of the argument count. The number of the call is loaded before and after them.
    """
    matched, other = (_ALLOW, _REFUSE) if allowed else (_REFUSE, _ALLOW)
    block = [(_LOAD, 0, 0, _ARGUMENT_OFFSETS[index]), (_AND, 0, 0, mask)]
    for value in values:
        block += [(_IF_EQUAL, 0, 1, value), (_RETURN, 0, 0, matched)]
    block.append((_RETURN, 0, 0, other))
    return [(_IF_EQUAL, 0, len(block), number), *block]
