"""The filter for system calls, run by a small interpreter of its instructions."""

import errno
import struct

import pytest

from rookery.system.confinement.seccomp import AF_INET, AF_NETLINK, AF_UNIX, ARCHITECTURES, build_filter

ALLOWED, REFUSED = 0x7FFF0000, 0x00050000 | errno.EPERM
I386, ARM = 0x40000003, 0x40000028


def run(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """Run a filter on one system call, and return what it returns."""
    data = struct.pack("=IIQ6Q", number, audit, 0, *(*arguments, *[0] * 6)[:6])
    instructions = list(struct.iter_unpack("=HBBI", program))
    position = accumulator = 0
    while True:
        code, if_true, if_false, value = instructions[position]
        position += 1
        if code == 0x06:
            return value
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x54:
            accumulator &= value
        else:
            matches = accumulator == value if code == 0x15 else accumulator >= value
            position += if_true if matches else if_false


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_a_unix_socket_is_refused_and_a_network_socket_allowed(machine: str) -> None:
    architecture = ARCHITECTURES[machine]
    program = build_filter(architecture, network=True, unix_sockets=False)
    assert run(program, architecture.audit, architecture.socket, AF_UNIX) == REFUSED
    assert run(program, architecture.audit, architecture.socket, AF_INET) == ALLOWED
    assert run(program, architecture.audit, architecture.socket, AF_NETLINK) == ALLOWED
    vsock, packet = 40, 17
    assert run(program, architecture.audit, architecture.socket, vsock) == REFUSED
    assert run(program, architecture.audit, architecture.socket, packet) == REFUSED


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_a_pair_of_sockets_is_allowed_only_as_a_connected_stream(machine: str) -> None:
    architecture = ARCHITECTURES[machine]
    stream, datagram, raw, seqpacket, flags = 1, 2, 3, 5, 0o2004000
    for unix_sockets in (False, True):
        program = build_filter(architecture, network=True, unix_sockets=unix_sockets)
        for kind in (stream, seqpacket):
            assert run(program, architecture.audit, architecture.socketpair, AF_UNIX, kind | flags) == ALLOWED
        for kind in (datagram, raw):
            expected = ALLOWED if unix_sockets else REFUSED
            assert run(program, architecture.audit, architecture.socketpair, AF_UNIX, kind | flags) == expected


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_without_network_no_internet_socket_is_allowed(machine: str) -> None:
    architecture = ARCHITECTURES[machine]
    program = build_filter(architecture, network=False, unix_sockets=True)
    assert run(program, architecture.audit, architecture.socket, AF_INET) == REFUSED
    assert run(program, architecture.audit, architecture.socket, AF_UNIX) == ALLOWED


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize("audit", [I386, ARM])
def test_calls_of_another_architecture_are_refused(machine: str, audit: int) -> None:
    architecture = ARCHITECTURES[machine]
    program = build_filter(architecture, network=True, unix_sockets=True)
    read = 0
    assert run(program, audit, read) == REFUSED
    assert run(program, architecture.audit, read) == ALLOWED


def test_x32_calls_are_refused() -> None:
    architecture = ARCHITECTURES["x86_64"]
    program = build_filter(architecture, network=True, unix_sockets=True)
    assert run(program, architecture.audit, 0x40000000 | architecture.socket, AF_INET) == REFUSED


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_io_uring_keys_shared_segments_and_terminal_input_are_refused(machine: str) -> None:
    architecture = ARCHITECTURES[machine]
    program = build_filter(architecture, network=True, unix_sockets=True)
    for number in architecture.refused:
        assert run(program, architecture.audit, number) == REFUSED
    push_character, set_window_size = 0x5412, 0x5414
    assert run(program, architecture.audit, architecture.ioctl, 0, push_character) == REFUSED
    assert run(program, architecture.audit, architecture.ioctl, 0, set_window_size) == ALLOWED
    assert run(program, architecture.audit, architecture.prlimit, 0) == ALLOWED
    assert run(program, architecture.audit, architecture.prlimit, 4711) == REFUSED


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_limited_ports_cannot_be_reached_by_other_protocols_or_flags(machine: str) -> None:
    architecture = ARCHITECTURES[machine]
    stream, tcp, udp, fast_open = 1, 6, 17, 0x20000000
    for limits_ports in (False, True):
        program = build_filter(architecture, network=True, unix_sockets=False, limits_ports=limits_ports)
        expected = REFUSED if limits_ports else ALLOWED
        for protocol in (33, 132, 256, 261, 262):
            assert run(program, architecture.audit, architecture.socket, AF_INET, stream, protocol) == expected
        for protocol in (0, tcp, udp):
            assert run(program, architecture.audit, architecture.socket, AF_INET, stream, protocol) == ALLOWED
        assert run(program, architecture.audit, architecture.socket, AF_UNIX, stream, 0) == REFUSED
        for number, index in architecture.send:
            arguments = [0] * index
            assert run(program, architecture.audit, number, *arguments, fast_open | 0x4000) == expected
            assert run(program, architecture.audit, number, *arguments, 0x4000) == ALLOWED
