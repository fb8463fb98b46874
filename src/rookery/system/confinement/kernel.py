"""Apply rules to a thread, and start programs from a confined thread.

Rules of Landlock and filters of seccomp belong to a thread, and a child inherits those of the thread that starts it. So
a program is confined before its first instruction, without another program in between, and the rest of this process is
not confined. The thread waits for its child: a program that asked for a signal at the end of its parent gets it when
this thread ends.

Standard library only: the command line uses this too.
"""

import ctypes
import errno
import functools
import os
import stat
import struct
import sys
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from rookery.system.confinement.policy import ConfinementPolicy
from rookery.system.confinement.rules import FILE_RIGHTS, ConfinementRules, KernelSupport, make_rules
from rookery.system.confinement.seccomp import find_architecture
from rookery.system.errors import RookeryError

_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_QUERY_VERSION = 1
_PATH_BENEATH = 1
_NET_PORT = 2
_SET_NO_NEW_PRIVS = 38
_SET_SECCOMP = 22
_DROP_CAPABILITY = 24
_SECCOMP_FILTER = 2
# The capabilities that a root user's programs keep: over files of other users, to change the user, and for low ports.
_KEPT_CAPABILITIES = {0, 1, 3, 4, 6, 7, 10}
_MAX_CAPABILITY = 63
# Of a path, with the links that it leads through.
_MAX_STEPS = 400

T = TypeVar("T")


@functools.cache
def find_support() -> KernelSupport:
    """Return what the kernel of this machine can enforce."""
    if sys.platform != "linux":
        return KernelSupport(0, None)
    try:
        abi = _call(_CREATE_RULESET, None, 0, _QUERY_VERSION)
    except OSError:
        abi = 0
    return KernelSupport(abi, find_architecture())


def require_support(support: KernelSupport | None = None) -> None:
    """Raise RookeryError if this machine cannot confine a program."""
    if (support or find_support()).abi < 1:
        where = "this kernel has no Landlock" if sys.platform == "linux" else f"there is no sandbox for {sys.platform}"
        raise RookeryError(
            "sandbox-unavailable",
            f"the program cannot be confined: {where}",
            'use Linux 5.13 or later with Landlock enabled, or set sandbox.unavailable = "unconfined"',
        )


def confine(policy: ConfinementPolicy) -> ConfinementRules:
    """Confine this thread, and everything that it starts, for good; return the rules in force."""
    support = find_support()
    require_support(support)
    rules = make_rules(policy, support)
    try:
        _apply(rules)
    except OSError as error:
        raise RookeryError(
            "sandbox-unavailable",
            f"the kernel refused to confine the program: {error.strerror}",
            "see `rookery doctor`",
        ) from error
    return rules


def run_confined(policy: ConfinementPolicy, start: Callable[[], T], get_pid: Callable[[T], int]) -> T:
    """Return the result of `start`, which starts a program, from a thread that is confined.

    `get_pid` returns the process of the result; the thread lasts as long as it.
    """
    result: Future[T] = Future()

    def work() -> None:
        try:
            confine(policy)
            started = start()
        except BaseException as error:
            result.set_exception(error)
            return
        pid = get_pid(started)
        result.set_result(started)
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return

    threading.Thread(target=work, name="confined", daemon=True).start()
    return result.result()


def _apply(rules: ConfinementRules) -> None:
    attributes = struct.pack("=QQQ", rules.handled_files, rules.handled_ports, rules.scoped)
    # An older kernel refuses a longer structure only if what it does not know is not zero.
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        writable = {os.path.realpath(path) for path in rules.writable}
        for path, rights in rules.paths:
            if (real := find_trusted_path(path, writable)) is not None:
                _allow_path(ruleset, real, rights)
        for port, rights in rules.ports:
            _call(_ADD_RULE, ruleset, _NET_PORT, struct.pack("=QQ", rights, port), 0)
        _drop_capabilities()
        _control(_SET_NO_NEW_PRIVS, 1)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    if rules.filter:
        buffer = ctypes.create_string_buffer(rules.filter, len(rules.filter))
        program = struct.pack("HxxxxxxP", len(rules.filter) // 8, ctypes.addressof(buffer))
        _control(_SET_SECCOMP, _SECCOMP_FILTER, program)


def find_trusted_path(path: str, writable: Collection[str]) -> str | None:
    """Return a path with its links followed; None if it leads through the inside of one of the `writable` folders.

    A process that may write there could have planted a link, or replace a folder of the path by one.
    """
    remaining = list(reversed(Path(path).parts))
    reached = Path("/")
    for _ in range(_MAX_STEPS):
        if not remaining:
            return str(reached)
        if str(reached) in writable:
            return None
        name = remaining.pop()
        if name == "..":
            reached = reached.parent
            continue
        try:
            target = (reached / name).readlink()
        except OSError:
            reached /= name
        else:
            remaining += reversed(target.parts)
    return None


def _allow_path(ruleset: int, path: str, rights: int) -> None:
    """Add a rule for a path without links. One that does not exist, or that the user cannot reach, is skipped."""
    try:
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= FILE_RIGHTS
        if rights:
            _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, handle), 0)
    except OSError as error:
        # A path on a filesystem without files of its own, such as a pipe.
        if error.errno not in (errno.EBADFD, errno.EINVAL):
            raise
    finally:
        os.close(handle)


def _drop_capabilities() -> None:
    """Take from a root user's programs what would let them control the machine, such as loading kernel modules."""
    if os.geteuid() != 0:
        return
    for capability in range(_MAX_CAPABILITY + 1):
        if capability not in _KEPT_CAPABILITIES:
            try:
                _control(_DROP_CAPABILITY, capability)
            except OSError:
                # Unknown to this kernel, or this process may not drop it, as in a container.
                continue


def _call(number: int, *arguments: object) -> int:
    result: int = _load_libc().syscall(
        number, *(ctypes.c_long(value) if isinstance(value, int) else value for value in arguments)
    )
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _control(option: int, value: int, data: bytes | None = None) -> None:
    zero = ctypes.c_long(0)
    if _load_libc().prctl(option, ctypes.c_long(value), data if data is not None else zero, zero, zero) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@functools.cache
def _load_libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
