"""Rules from a policy and from what the kernel can do."""

from dataclasses import replace

import pytest

from rookery.system.confinement.policy import ConfinementPolicy, parse_policy
from rookery.system.confinement.rules import FILE_RIGHTS, KernelSupport, list_missing, make_rules
from rookery.system.confinement.seccomp import ARCHITECTURES

X86 = ARCHITECTURES["x86_64"]
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
MAKE_CHAR, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM, REFER = 1 << 6, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13
CONNECT = 2


def test_each_kind_of_path_gets_its_rights() -> None:
    policy = ConfinementPolicy(
        read=("/r",), execute=("/x",), write=("/w",), unlisted=("/dev/shm",), devices=("/dev/null",)
    )
    paths = dict(make_rules(policy, KernelSupport(7, X86)).paths)
    assert paths["/r"] == READ_FILE | READ_DIR
    assert paths["/x"] == READ_FILE | READ_DIR | EXECUTE
    assert paths["/w"] & (WRITE_FILE | READ_FILE | EXECUTE) == WRITE_FILE | READ_FILE | EXECUTE
    assert not paths["/dev/shm"] & READ_DIR
    assert paths["/dev/null"] & ~FILE_RIGHTS == 0


def test_no_device_node_can_be_made_anywhere() -> None:
    rules = make_rules(ConfinementPolicy(write=("/w",), unlisted=("/u",)), KernelSupport(7, X86))
    assert rules.handled_files & MAKE_CHAR and rules.handled_files & MAKE_BLOCK
    assert not any(rights & (MAKE_CHAR | MAKE_BLOCK) for _, rights in rules.paths)


def test_a_path_in_a_writable_folder_has_no_rule_of_its_own() -> None:
    """It could be replaced by a link to elsewhere."""
    policy = ConfinementPolicy(read=("/w/a/link",), execute=("/w/b",), write=("/w", "/w/c", "/wide"))
    assert [path for path, _ in make_rules(policy, KernelSupport(7, X86)).paths] == ["/w", "/wide"]


@pytest.mark.parametrize("kind", ["write", "unlisted", "linkless"])
def test_a_path_in_any_folder_that_can_be_changed_has_no_rule_of_its_own(kind: str) -> None:
    policy = replace(ConfinementPolicy(execute=("/u/x/objects",), read=("/u/y", "/v")), **{kind: ("/u",)})
    assert [path for path, _ in make_rules(policy, KernelSupport(7, X86)).paths] == ["/u", "/v"]


def test_no_link_can_be_made_in_a_folder_that_others_write_to() -> None:
    for abi in (1, 2, 4, 5, 7):
        paths = dict(make_rules(ConfinementPolicy(write=("/w",), linkless=("/l",)), KernelSupport(abi, X86)).paths)
        assert paths["/l"] & WRITE_FILE and not paths["/l"] & (MAKE_SYM | MAKE_SOCK | MAKE_FIFO | REFER)


def test_an_older_kernel_gets_no_right_that_it_does_not_know() -> None:
    policy = ConfinementPolicy(write=("/w",), network=False)
    for abi, count in ((1, 13), (2, 14), (3, 15), (4, 15), (5, 16), (6, 16), (7, 16), (12, 16)):
        rules = make_rules(policy, KernelSupport(abi, X86))
        assert rules.handled_files == (1 << count) - 1
        assert all(rights & ~rules.handled_files == 0 for _, rights in rules.paths)
        assert bool(rules.handled_ports) == (abi >= 4)
        assert bool(rules.scoped) == (abi >= 6)


def test_what_is_missing_is_named() -> None:
    policy = ConfinementPolicy(network=False)
    assert list_missing(KernelSupport(7, X86), policy) == ()
    assert list_missing(KernelSupport(5, X86), policy) == ("signals to other processes",)
    assert "limits on TCP ports" in list_missing(KernelSupport(3, X86), policy)
    assert "limits on TCP ports" not in list_missing(KernelSupport(3, X86), ConfinementPolicy())
    assert "files" in list_missing(KernelSupport(0, X86), policy)
    assert "Unix sockets" in list_missing(KernelSupport(7, None), policy)
    assert make_rules(policy, KernelSupport(7, None)).filter == b""


def test_tcp_is_limited_to_the_ports_that_are_named() -> None:
    free = make_rules(ConfinementPolicy(), KernelSupport(7, X86))
    assert (free.handled_ports, free.ports) == (0, ())
    some = make_rules(ConfinementPolicy(connect_ports=(443,), bind_ports=(3000, 443)), KernelSupport(7, X86))
    assert (some.handled_ports, some.ports) == (3, ((443, 3), (3000, 1)))
    none = make_rules(ConfinementPolicy(network=False, connect_ports=(443,)), KernelSupport(7, X86))
    assert (none.handled_ports, none.ports) == (3, ())


def test_a_policy_survives_json() -> None:
    policy = ConfinementPolicy(read=("/r",), connect_ports=(CONNECT,), unix_sockets=True)
    assert parse_policy({**policy.as_dict(), "read": ["/r"], "connect_ports": [CONNECT]}) == policy
