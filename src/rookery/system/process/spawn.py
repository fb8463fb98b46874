"""Start processes. No other module starts one for the daemon."""

import asyncio
import contextlib
import ctypes
import functools
import logging
import os
import platform
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from rookery.system import metrics
from rookery.system.causes import explain_os_error
from rookery.system.confinement.kernel import run_confined
from rookery.system.confinement.policy import ConfinementPolicy
from rookery.system.errors import RookeryError
from rookery.system.process import table
from rookery.system.process.child import Child, ChildOutput, HeadBuffer, make_child_pipe

# The longest time slice that Linux grants.
_SLICE_NANOSECONDS = 100_000_000
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}.get(platform.machine())

logger = logging.getLogger("rookery.spawn")

# How often to search again for descendants that fork faster than they are found.
_MAX_SEARCHES = 5
_MOST_FOLDERS = 10_000
# The key of the user in a marker, and the prefix of the number of a workspace.
_USER_KEY = "user"
_WORKSPACE_KEY_PREFIX = "workspace-"
STARTED = metrics.counter("rookery_children_started_total", "Processes that Rookery started.")


@dataclass(frozen=True)
class Priority:
    """Scheduling of a child: how `nice` it is, and whether it gets a `long_slice`.

    A process that wakes up preempts one with a long slice at once. Do not give it to processes that compute for long:
    another process that has used up its own share waits until such a slice ends.
    """

    nice: int
    long_slice: bool = False


def lower_priority(pid: int, priority: Priority) -> None:
    """Make a child, and all that it starts, yield to the processes that serve users.

    On an idle machine it runs as fast as before.
    """
    with contextlib.suppress(OSError):
        nice = min(os.getpriority(os.PRIO_PROCESS, pid) + priority.nice, 19)
        os.setpriority(os.PRIO_PROCESS, pid, nice)
        if priority.long_slice:
            _lengthen_slice(pid, nice)
    # With autogroups Linux weighs sessions instead of processes, and the nice value alone has no effect.
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(priority.nice))


def _lengthen_slice(pid: int, nice: int) -> None:
    """Request a long time slice. Linux 6.12 and later honour it; earlier versions ignore the slice."""
    if sys.platform == "linux" and _SCHED_SETATTR is not None:
        attributes = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, nice, 0, _SLICE_NANOSECONDS, 0, 0)
        _load_libc().syscall(_SCHED_SETATTR, pid, attributes, 0)


@functools.cache
def _load_libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


class WorkspaceIdentity(NamedTuple):
    """A workspace that children work for: its folder, its own git folder, and when that was made."""

    folder: Path
    git_folder: Path
    created: int


# Whom a child works for, and whose rights it has when it calls Rookery: the workspace at this path, the user, or
# nobody.
WorksFor = Path | Literal["user"] | None
# The same for a calling process; "outside" means that Rookery did not start it.
Origin = WorkspaceIdentity | Literal["user", "outside"] | None


@dataclass(frozen=True)
class CompletedCommand:
    """The result of a finished command; `cut` counts the bytes of output beyond the limit."""

    returncode: int
    stdout: bytes
    stderr: bytes
    cut: int


class Spawner:
    """Starts the children of one daemon instance and keeps a list of those that are alive."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.children: set[Child] = set()
        # Whether any program was ever confined, a child or not; the rights of others then depend on it.
        self.has_confined = False
        # Earlier daemons of the same state folder, whose processes may still run.
        self.earlier_instances: frozenset[str] = frozenset()
        # Returns the workspace at a path.
        self.find_workspace: Callable[[Path], WorkspaceIdentity | None] = lambda folder: None
        # Returns what confines a program that reads a folder and runs what it names, if a confined program may have
        # changed that folder.
        self.find_confinement: Callable[[Path], ConfinementPolicy | None] = lambda folder: None
        self._workspaces: list[WorkspaceIdentity] = []
        self._count = 0
        # The working folder of each child, by its number. Ended children stay listed: their descendants may still run.
        self._folders: dict[str, Path] = {}

    async def start(
        self,
        argv: Sequence[str],
        *,
        name: str,
        cwd: Path,
        env: Mapping[str, str],
        stdin: bool = False,
        stdout: ChildOutput = None,
        stderr: ChildOutput = None,
        priority: Priority | None = None,
        works_for: WorksFor = None,
        confinement: ConfinementPolicy | None = None,
    ) -> Child:
        """Start `argv` with exactly `env` and our marker. `stdin` requests a pipe; otherwise stdin is /dev/null.

        With `confinement`, the kernel limits the child and everything that it starts.
        """
        self._count += 1
        number = f"{self._count}{self._owner_key(works_for)}"
        marked = dict(env) | {table.MARKER: table.make_marker(self.instance, number)}
        ours: list[int] = []
        with contextlib.ExitStack() as theirs:
            try:
                outputs = [(_open_child_output(output, ours, theirs), output) for output in (stdout, stderr)]
                child_in, our_in = make_child_pipe(theirs, ours, reading=True) if stdin else (subprocess.DEVNULL, None)
                # Blocks the loop for two milliseconds: a PDEATHSIG child dies when the thread that started it ends.
                start = functools.partial(
                    subprocess.Popen[bytes],
                    list(argv),
                    cwd=cwd,
                    env=marked,
                    stdin=child_in,
                    stdout=outputs[0][0],
                    stderr=outputs[1][0],
                    start_new_session=True,
                )
                process = start() if confinement is None else run_confined(confinement, start, _read_pid)
            except RookeryError:
                for fd in ours:
                    os.close(fd)
                raise
            except (OSError, ValueError) as error:
                for fd in ours:
                    os.close(fd)
                raise _start_error(name, argv, cwd, error, confined=confinement is not None) from error
        child = Child(name, process, table.start_time(process.pid), table.match_child(self.instance, number), number)
        if priority is not None:
            lower_priority(child.pid, priority)
        STARTED.add()
        self.has_confined = self.has_confined or confinement is not None
        self.children.add(child)
        self._folders[number] = cwd
        if len(self._folders) > _MOST_FOLDERS:
            del self._folders[next(iter(self._folders))]
        _watch(process, lambda: self._on_exit(child))
        fed = [output for output in (stdout, stderr) if output is not None and not isinstance(output, Path)]
        child.attach(our_in, list(zip(ours, fed, strict=False)))
        logger.debug("started %s (pid %d)", name, child.pid)
        return child

    async def run(
        self,
        argv: Sequence[str],
        *,
        name: str,
        cwd: Path,
        env: Mapping[str, str],
        timeout: float,
        input: bytes | None = None,
        limit: int = 10_000_000,
        works_for: WorksFor = None,
        confinement: ConfinementPolicy | None = None,
    ) -> CompletedCommand:
        """Run a short command to its end; on timeout or cancellation, stop its whole process tree first."""
        out = HeadBuffer(limit)
        err = HeadBuffer(limit)
        child = await self.start(
            argv,
            name=name,
            cwd=cwd,
            env=env,
            stdin=input is not None,
            stdout=out,
            stderr=err,
            works_for=works_for,
            confinement=confinement,
        )
        try:
            async with asyncio.timeout(timeout):
                if child.stdin is not None:
                    with contextlib.suppress(ConnectionError):
                        child.stdin.write(input or b"")
                        await child.stdin.drain()
                    child.stdin.close()
                code = await child.wait()
                if not await child.wait_drained(1.0):
                    await child.stop()
        except TimeoutError:
            await child.stop()
            raise RookeryError("timeout", f"{name} did not end within {timeout:g} s") from None
        except BaseException:
            await child.stop()
            raise
        finally:
            self._folders.pop(child.number, None)
        return CompletedCommand(code, bytes(out.data), bytes(err.data), out.cut + err.cut)

    def match_started_in(self, folder: Path) -> Callable[[str], bool]:
        """Return a predicate for markers: whether this instance started the process, or an ancestor, in `folder`."""
        markers = {
            f"{self.instance}.{number}" for number, cwd in self._folders.items() if folder in (cwd, *cwd.parents)
        }
        return lambda marker: not markers.isdisjoint(marker.split(":"))

    def find_origin(self, markers: Iterable[str]) -> Origin:
        """Return whom the process with these markers works for; None for nobody, or if the markers disagree.

        Only markers of this instance and of earlier ones count: another Rookery may have started this one.
        """
        marks = table.select_markers(markers, {self.instance, *self.earlier_instances})
        if not marks:
            return "outside"
        origins: set[Origin] = {self._origin(mark) for mark in marks}
        return origins.pop() if len(origins) == 1 else None

    def _origin(self, mark: str) -> Origin:
        """Return whom a process with this mark works for; None for marks of earlier instances."""
        instance, _, rest = mark.partition(".")
        key = rest.partition(".")[2]
        if instance != self.instance:
            return None
        if key == _USER_KEY:
            return "user"
        number = key.removeprefix(_WORKSPACE_KEY_PREFIX)
        is_number = key != number and number.isascii() and number.isdigit() and len(number) < 10
        return self._workspaces[int(number)] if is_number and int(number) < len(self._workspaces) else None

    def _owner_key(self, works_for: WorksFor) -> str:
        """Return the part of a marker that says whom a child works for; one key per workspace, not per child."""
        if works_for is None:
            return ""
        if works_for == "user":
            return f".{_USER_KEY}"
        home = self.find_workspace(works_for)
        if home is None:
            return ""
        if home not in self._workspaces:
            self._workspaces.append(home)
        return f".{_WORKSPACE_KEY_PREFIX}{self._workspaces.index(home)}"

    async def stop_all(self) -> bool:
        """Stop all children concurrently, then any descendants left; return whether none of them is alive."""
        await asyncio.gather(*(child.stop() for child in list(self.children)), return_exceptions=True)
        self.children.clear()
        owned = table.match_instance(self.instance)
        for number in (signal.SIGTERM, *[signal.SIGKILL] * _MAX_SEARCHES):
            strays = await asyncio.to_thread(table.find_marked, owned)
            if not strays:
                return True
            table.send_signal(strays, number)
            await asyncio.to_thread(table.wait_for_exits, strays, 1.0)
        return not await asyncio.to_thread(table.find_marked, owned)

    def kill_all_now(self) -> None:
        """Send SIGKILL to all children and their descendants at once, without waiting."""
        # By their groups too: a process that is executing another program at this moment shows no marker.
        for child in list(self.children):
            child.kill_now()
        table.send_signal(table.find_marked(table.match_instance(self.instance)), signal.SIGKILL)

    def _on_exit(self, child: Child) -> None:
        """Reap a child that has ended, and remove it once the rest of its group is stopped."""
        unfinished = child.reap()
        if unfinished is None:
            self.children.discard(child)
        else:
            unfinished.add_done_callback(lambda _: self.children.discard(child))


def _open_child_output(output: ChildOutput, our_ends: list[int], child_ends: contextlib.ExitStack) -> int:
    """Open the child's end of an output and return its descriptor."""
    if output is None:
        return subprocess.DEVNULL
    if isinstance(output, Path):
        # A named pipe without a reader must not block us.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        handle = os.open(output, flags, 0o600)
        child_ends.callback(os.close, handle)
        return handle
    return make_child_pipe(child_ends, our_ends, reading=False)[0]


def _watch(process: "subprocess.Popen[bytes]", on_exit: Callable[[], None]) -> None:
    """Call `on_exit` on the loop once the process has ended. EOF is no sign: a descendant can keep the pipes open."""
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        _watch_by_thread(process, loop, on_exit)
        return

    def on_readable() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        on_exit()

    loop.add_reader(handle, on_readable)


def _watch_by_thread(
    process: "subprocess.Popen[bytes]", loop: asyncio.AbstractEventLoop, on_exit: Callable[[], None]
) -> None:
    """Do the same on systems without pidfd."""

    def wait() -> None:
        process.wait()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(on_exit)

    threading.Thread(target=wait, name=f"wait-{process.pid}", daemon=True).start()


def _read_pid(process: "subprocess.Popen[bytes]") -> int:
    return process.pid


def _start_error(
    name: str, argv: Sequence[str], cwd: Path, error: OSError | ValueError, *, confined: bool
) -> RookeryError:
    """Return the error for a program that could not be started."""
    if confined and isinstance(error, PermissionError):
        message = f"cannot start {name}: its sandbox does not allow it to run {argv[0]}"
        return RookeryError("spawn-failed", message, "add the folder of the program to sandbox.read")
    if isinstance(error, FileNotFoundError) and not cwd.is_dir():
        return RookeryError("spawn-failed", f"cannot start {name}: its folder {cwd} does not exist")
    if isinstance(error, FileNotFoundError):
        return RookeryError("spawn-failed", f"cannot start {name}: {argv[0]} was not found", f"install {argv[0]}")
    explained = explain_os_error(error, argv[0]) if isinstance(error, OSError) else None
    if explained is not None:
        return RookeryError("spawn-failed", f"cannot start {name}: {explained.message}", explained.remedy)
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return RookeryError("spawn-failed", f"cannot start {name}: {reason}")
