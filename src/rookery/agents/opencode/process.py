"""The process `opencode serve`: start it, wait until it listens, stop it, explain its exit.

No request is sent before OpenCode prints that it listens: it accepts connections earlier, and never answers them. What
it prints is kept in a log file of limited size.
"""

import asyncio
import contextlib
import logging
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from rookery.agents.opencode.environment import FOLDER_VARIABLES, GUARD_FILE, GUARD_VARIABLE, find_database, is_proxied
from rookery.agents.opencode.lock import first_start_lock
from rookery.agents.opencode.ports import is_port_taken
from rookery.system.causes import explain_end, find_write_problem
from rookery.system.confinement.policy import ConfinementPolicy
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import rename_durably
from rookery.system.log import REDACTOR
from rookery.system.process.child import Child, TailBuffer
from rookery.system.process.spawn import Priority, Spawner
from rookery.system.tasks import TaskSet

logger = logging.getLogger("rookery.agents")
_MAX_LOG_BYTES = 2_000_000
_TAIL_BYTES = 8_192
_MAX_LINE = 65_536
_FLUSH_SECONDS = 0.1
_APPEND_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_GUARD_LINE = b"rookery: the repository's own OpenCode config is kept off"
_LISTENING_LINE = re.compile(rb"^opencode server listening on http://127\.0\.0\.1:(\d+)\s*$")

# With this OpenCode takes any free port.
_ANY_PORT = 0
_PASSWORD_CHECK_SECONDS = 20.0
# Under load an agent gets a third of the processor time of other processes.
_BACKGROUND_PRIORITY = Priority(nice=5)
MAX_TAIL_BYTES = 1_000_000


class AgentLog:
    """A sink that writes to a log file. A full file is renamed to `<name>.1`, of which there is one.

    Agents print much, in small pieces: pieces that arrive right after another one are written together, a little later.
    """

    def __init__(self, path: Path, max_bytes: int = _MAX_LOG_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._last = TailBuffer(_TAIL_BYTES)
        self._write_failed = False
        self._buffer: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def older(self) -> Path:
        return self.path.with_name(f"{self.path.name}.1")

    def write(self, data: bytes) -> None:
        self._last.write(data)
        self._buffer.append(data)
        if self._timer is None:
            self._write()

    def flush(self) -> None:
        """Write all buffered data."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._buffer:
            self._append_buffer()

    def _write(self) -> None:
        self._timer = None
        if self._buffer:
            self._append_buffer()
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._write)

    def _append_buffer(self) -> None:
        data = b"".join(self._buffer)
        self._buffer.clear()
        try:
            size = self._size()
            if size and size + len(data) > self._max_bytes:
                rename_durably(self.path, self.older)
            with os.fdopen(os.open(self.path, _APPEND_FLAGS, 0o600), "ab") as file:
                file.write(data)
            self._write_failed = False
        except OSError as error:
            # The agent must not stop because its log cannot be written.
            if not self._write_failed:
                logger.error("the agent's output cannot be written to %s: %s", self.path, error)
            self._write_failed = True

    def _size(self) -> int:
        """Return the size of the file. Create its folder, but only if the file is missing."""
        try:
            return os.lstat(self.path).st_size
        except FileNotFoundError:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return 0

    def last_lines(self, count: int = 12) -> str:
        text = bytes(self._last).decode("utf-8", "replace")
        return "\n".join([line for line in text.splitlines() if line.strip()][-count:])


class ListenDetector:
    """A sink that looks for the line with which OpenCode reports its port, and passes everything on to the log.

    `guarded` says whether Rookery's guard has reported that it is loaded; it does so before all other output.
    """

    def __init__(self, log: AgentLog, on_listening: Callable[[int], None]) -> None:
        self.guarded = False
        self._log = log
        self._on_listening = on_listening
        self._line = b""
        self._is_listening = False

    def write(self, data: bytes) -> None:
        self._log.write(data)
        if self._is_listening:
            return
        *lines, self._line = (self._line + data)[-_MAX_LINE:].split(b"\n")
        for line in lines:
            self.guarded = self.guarded or line == _GUARD_LINE
            if not self._is_listening and (match := _LISTENING_LINE.match(line)):
                self._is_listening = True
                self._on_listening(int(match[1]))


class AgentSandbox(msgspec.Struct, frozen=True):
    """The policy of a confined agent, the variables that belong to it, and the environment of the user."""

    policy: ConfinementPolicy
    variables: Mapping[str, str]
    user: Mapping[str, str]


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a start. `ports` are tried in this order until one is free; after them any port is used."""

    name: str
    opencode: Path
    version: str
    folder: Path
    environment: Mapping[str, str]
    ports: Sequence[int]
    log: Path
    state: Path
    seconds: float = 60.0
    background: bool = True
    sandbox: AgentSandbox | None = None

    @property
    def password(self) -> str:
        return self.environment["OPENCODE_SERVER_PASSWORD"]


class ProcessExit(msgspec.Struct, frozen=True):
    """How a process ended. `reason` is for people, and empty if the end was requested."""

    code: int
    expected: bool
    reason: str


class AgentProcess:
    """An OpenCode process that listens."""

    def __init__(self, child: Child, port: int, launch: LaunchSpec, log: AgentLog) -> None:
        self.pid = child.pid
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.password = launch.password
        # Identifies the agent to Rookery.
        self.token = launch.environment.get("ROOKERY_TOKEN", "")
        # For other processes that must find the same files as the agent, and leave none elsewhere.
        # The agent may change its private folders, so nothing that is not confined may use them.
        environment = launch.environment if launch.sandbox is None else launch.sandbox.user
        self.folders = {name: environment[name] for name in FOLDER_VARIABLES if name in environment}
        self.sandbox = launch.sandbox
        self.is_proxied = is_proxied(launch.environment)
        self.log = log
        self._child = child
        self._launch = launch
        self._stopping = False

    @property
    def is_alive(self) -> bool:
        return self._child.returncode is None

    async def wait(self) -> ProcessExit:
        """Wait for the end of the process. Any number of callers may wait, at any time."""
        code = await self._child.wait()
        await self._child.wait_drained(1.0)
        self.log.flush()
        reason = "" if self._stopping else _explain_exit(code, self.log, self._launch)
        return ProcessExit(code, self._stopping, reason)

    async def stop(self) -> None:
        """Stop the process and all processes that it started."""
        self._stopping = self._stopping or self.is_alive
        await self._child.stop()
        self.log.flush()


async def start_agent(spawner: Spawner, launch: LaunchSpec) -> AgentProcess:
    """Start OpenCode and wait until it reports that it listens; a failed start is retried once."""
    REDACTOR.add(launch.password)
    require_writable_data(launch.environment)
    ports = deque([*launch.ports, _ANY_PORT])
    retried = False
    async with _first_start_lock(launch):
        while True:
            port = ports[0]
            if port != _ANY_PORT and is_port_taken(port):
                ports.popleft()
                continue
            try:
                return await _start_once(spawner, launch, port)
            except RookeryError as error:
                if port != _ANY_PORT and is_port_taken(port):
                    ports.popleft()
                    continue
                if retried or error.code == "spawn-failed":
                    raise
                logger.warning("%s: %s; trying once more", launch.name, error.message)
                retried = True


def _first_start_lock(launch: LaunchSpec) -> contextlib.AbstractAsyncContextManager[None]:
    """Return the lock on the database. A confined agent has one of its own, in a folder where it could plant links."""
    if launch.sandbox is not None:
        return contextlib.nullcontext()
    return first_start_lock(launch.state, find_database(launch.environment), launch.version)


async def _start_once(spawner: Spawner, launch: LaunchSpec, port: int) -> AgentProcess:
    log = AgentLog(launch.log)
    listens: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_listening(port: int) -> None:
        if not listens.done():
            listens.set_result(port)

    detector = ListenDetector(log, on_listening)
    child = await spawner.start(
        [str(launch.opencode), "serve", "--hostname", "127.0.0.1", "--port", str(port), "--print-logs"],
        name=launch.name,
        cwd=launch.folder,
        env=launch.environment,
        stdout=detector,
        stderr=log,
        priority=_BACKGROUND_PRIORITY if launch.background else None,
        works_for=launch.folder,
        confinement=launch.sandbox.policy if launch.sandbox is not None else None,
    )
    try:
        agent = AgentProcess(child, await _wait_for_port(child, listens, launch, log), launch, log)
        if launch.environment.get(GUARD_VARIABLE) == str(GUARD_FILE) and not detector.guarded:
            raise _unguarded_error()
        await _check_password(agent)
    except BaseException:
        await child.stop()
        log.flush()
        raise
    return agent


async def _wait_for_port(child: Child, listens: asyncio.Future[int], launch: LaunchSpec, log: AgentLog) -> int:
    """Return the port on which OpenCode listens. Send nothing before: earlier requests are never answered."""
    tasks = TaskSet(launch.name)
    exited = tasks.start(child.wait(), "end")
    try:
        async with asyncio.timeout(launch.seconds):
            await asyncio.wait([listens, exited], return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        message = f"OpenCode did not listen within {launch.seconds:g} s\n{log.last_lines()}".rstrip()
        raise RookeryError("agent-unavailable", message, f"see its log: {launch.log}") from None
    finally:
        await tasks.close()
    if not listens.done():
        await child.wait_drained(1.0)
    if listens.done():
        return listens.result()
    assert child.returncode is not None
    raise RookeryError("agent-unavailable", _explain_exit(child.returncode, log, launch), f"see its log: {launch.log}")


def _unguarded_error() -> RookeryError:
    return RookeryError(
        "needs-approval",
        "this version of OpenCode cannot be prevented from running the repository's own code, which is not approved",
        "run `rookery guard approve`, or use the version of OpenCode that Rookery pins",
    )


async def _check_password(agent: AgentProcess) -> None:
    """Check that OpenCode rejects requests without the password: they could answer the questions of a session."""
    status = b""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_PASSWORD_CHECK_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
            try:
                host = f"127.0.0.1:{agent.port}"
                writer.write(f"GET /global/health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                status = await reader.readline()
            finally:
                writer.close()
    if b" 401 " not in status:
        response = status.decode("latin-1").strip() or "nothing"
        raise RookeryError(
            "agent-unavailable",
            f"OpenCode returned {response!r} to a request without a password, which it should reject",
            "use the version of OpenCode that Rookery pins",
        )


def require_writable_data(environment: Mapping[str, str]) -> None:
    """Raise RookeryError if the folder of OpenCode's data is not writable: OpenCode's own error names no cause."""
    if (obstacle := find_write_problem((find_database(environment).parent,))) is not None:
        raise RookeryError("agent-unavailable", f"OpenCode cannot run: {obstacle.message}", obstacle.remedy)


def _explain_exit(code: int, log: AgentLog, launch: LaunchSpec) -> str:
    output = log.last_lines()
    folders = (
        launch.folder,
        find_database(launch.environment).parent,
        launch.log.parent,
        launch.environment.get("TMPDIR", "/tmp"),  # noqa: S108
    )
    return f"OpenCode {explain_end(code, output, folders)}\n{output}".rstrip()


def read_last_lines(path: Path, count: int, max_bytes: int = MAX_TAIL_BYTES) -> list[str]:
    """Return up to `count` whole lines from the last `max_bytes` bytes; none if there is no such file."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return []
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - max_bytes, 0))
            data = file.read(max_bytes)
    except OSError:
        return []
    if size > max_bytes:
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", "replace").splitlines()[-count:] if count else []
