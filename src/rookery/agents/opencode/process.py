"""One `opencode serve`: started, used only once it says that it listens, stopped, and its end told with a reason."""

import asyncio
import contextlib
import logging
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from rookery.agents.environment import GUARD, GUARD_VARIABLE, data_file
from rookery.agents.first_start import first_start_alone
from rookery.agents.output import AgentLog, Announcement
from rookery.agents.ports import is_taken
from rookery.system.child import Child
from rookery.system.errors import RookeryError
from rookery.system.log import REDACTOR
from rookery.system.priority import Priority
from rookery.system.spawn import Spawner
from rookery.system.tasks import TaskSet

logger = logging.getLogger("rookery.agents")
# OpenCode then takes any port that is free.
_ANY = 0
_GREETING_SECONDS = 20.0
# Where all want the processor, an agent has a third of what others have.
_BACKGROUND = Priority(nice=5)


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """All that a start needs. `ports` are tried in this order while they are taken; after them any port will do."""

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

    @property
    def password(self) -> str:
        return self.environment["OPENCODE_SERVER_PASSWORD"]


class Ended(msgspec.Struct, frozen=True):
    """How an agent ended; `reason` is for people, and empty if it was asked to end."""

    code: int
    expected: bool
    reason: str


class AgentProcess:
    """An OpenCode that listens."""

    def __init__(self, child: Child, port: int, launch: Launch, log: AgentLog) -> None:
        self.pid = child.pid
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.password = launch.password
        # By which it is known to us.
        self.token = launch.environment.get("ROOKERY_TOKEN", "")
        self.log = log
        self._child = child
        self._stopping = False

    @property
    def alive(self) -> bool:
        return self._child.returncode is None

    async def ended(self) -> Ended:
        """Wait for its end; any number of callers may, at any time."""
        code = await self._child.wait()
        await self._child.drained(1.0)
        self.log.flush()
        reason = "" if self._stopping else _why(code, self.log)
        return Ended(code, self._stopping, reason)

    async def stop(self) -> None:
        """End it and all that it started."""
        self._stopping = self._stopping or self.alive
        await self._child.stop()
        self.log.flush()


async def start_agent(spawner: Spawner, launch: Launch) -> AgentProcess:
    """Start OpenCode and wait until it says that it listens; a first start that fails is tried once more."""
    REDACTOR.add(launch.password)
    ports = deque([*launch.ports, _ANY])
    retried = False
    async with first_start_alone(launch.state, data_file(launch.environment), launch.version):
        while True:
            port = ports[0]
            if port != _ANY and is_taken(port):
                ports.popleft()
                continue
            try:
                return await _start_once(spawner, launch, port)
            except RookeryError as error:
                if port != _ANY and is_taken(port):
                    ports.popleft()
                    continue
                if retried or error.code == "spawn-failed":
                    raise
                logger.warning("%s: %s; trying once more", launch.name, error.message)
                retried = True


async def _start_once(spawner: Spawner, launch: Launch, port: int) -> AgentProcess:
    log = AgentLog(launch.log)
    listens: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def found(port: int) -> None:
        if not listens.done():
            listens.set_result(port)

    said = Announcement(log, found)
    child = await spawner.start(
        [str(launch.opencode), "serve", "--hostname", "127.0.0.1", "--port", str(port), "--print-logs"],
        name=launch.name,
        cwd=launch.folder,
        env=launch.environment,
        stdout=said,
        stderr=log,
        priority=_BACKGROUND if launch.background else None,
    )
    try:
        agent = AgentProcess(child, await _port(child, listens, launch, log), launch, log)
        if launch.environment.get(GUARD_VARIABLE) == str(GUARD) and not said.guarded:
            raise _unguarded()
        await _check_password(agent)
    except BaseException:
        await child.stop()
        log.flush()
        raise
    return agent


async def _port(child: Child, listens: asyncio.Future[int], launch: Launch, log: AgentLog) -> int:
    """Where it listens. Nothing is asked of it before: it accepts connections earlier, and never answers those."""
    tasks = TaskSet(launch.name)
    dead = tasks.start(child.wait(), "end")
    try:
        async with asyncio.timeout(launch.seconds):
            await asyncio.wait([listens, dead], return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        told = f"OpenCode does not listen after {launch.seconds:g} s\n{log.last_lines()}".rstrip()
        raise RookeryError("agent-unavailable", told, f"see its log: {launch.log}") from None
    finally:
        await tasks.close()
    if not listens.done():
        await child.drained(1.0)
    if listens.done():
        return listens.result()
    assert child.returncode is not None
    raise RookeryError("agent-unavailable", _why(child.returncode, log), f"see its log: {launch.log}")


def _unguarded() -> RookeryError:
    return RookeryError(
        "needs-approval",
        "this OpenCode cannot be kept from running what the repository brings along, which is not approved",
        "run `rookery guard approve`, or use the version of OpenCode that Rookery pins",
    )


async def _check_password(agent: AgentProcess) -> None:
    """That nobody is served without the password: with it a session's own questions can be answered."""
    status = b""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_GREETING_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
            try:
                host = f"127.0.0.1:{agent.port}"
                writer.write(f"GET /global/health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                status = await reader.readline()
            finally:
                writer.close()
    if b" 401 " not in status:
        told = status.decode("latin-1").strip() or "nothing"
        raise RookeryError(
            "agent-unavailable",
            f"OpenCode answers {told!r} to a stranger, where it should ask for its password",
            "use the version of OpenCode that Rookery pins",
        )


def _why(code: int, log: AgentLog) -> str:
    try:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    except ValueError:
        how = f"was ended by signal {-code}"
    return f"OpenCode {how}\n{log.last_lines()}".rstrip()
