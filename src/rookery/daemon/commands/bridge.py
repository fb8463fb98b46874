"""`rookery bridge`: MCP between this process's stdin and stdout and the daemon, over the daemon's Unix socket."""

import asyncio
import contextlib
from collections.abc import Sequence

from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from rookery.cli import link
from rookery.cli.failure import Failure, report
from rookery.cli.ws_names import Known, quoted
from rookery.system import places
from rookery.system.tasks import TaskSet
from rookery.wire.bridge import Bridge
from rookery.wire.jsonrpc import CONNECTION_CLOSED, INVALID_REQUEST, Request, WireError, decode
from rookery.wire.lines import Lines, one_line
from rookery.wire.stdio_server import LINE_BYTES, Out, open_stdio

_CHUNK = 65_536
# One daemon may be on its way out, and the next not there yet.
_PAUSES = (0.1, 0.3, 1.0, 2.0, 4.0)
# How long a client that has closed its end is given what it still waits for.
_GOODBYE_SECONDS = 2.0


def run_bridge(workspace: str | None, project: str | None, mode: str | None, *, start: bool) -> int:
    """Relay until the client closes its end. A workspace that does not exist is told at once."""
    try:
        path = "/ws"
        if workspace is not None:
            found = Known(not start, project).one(workspace)
            path = f"/w/{quoted(found['project'])}/{quoted(found['name'])}/ws"
        asyncio.run(_relay(path if mode is None else f"{path}?mode={mode}", start))
    except Failure as failure:
        return report(failure)
    return 0


async def _relay(path: str, start: bool) -> None:
    reader, out = await open_stdio()
    relay = Relay(path, out, start=start)
    lines = Lines(LINE_BYTES)
    try:
        while data := await reader.read(_CHUNK):
            for line in lines.feed(data):
                if line is None:
                    told = f"a message must not be longer than {LINE_BYTES} bytes"
                    await relay.tell([WireError(INVALID_REQUEST, told).encoded(None)])
                elif line.strip():
                    await relay.take(line)
        await relay.settle()
    except ConnectionError:
        pass  # the client has gone without a word
    finally:
        await relay.close()
        with contextlib.suppress(ConnectionError):
            await out.close()


class Relay:
    """The line to the daemon, which is made when the client asks for something and there is none."""

    def __init__(self, path: str, out: Out, *, start: bool) -> None:
        self._path, self._out, self._start = path, out, start
        self._bridge = Bridge()
        self._line: ClientConnection | None = None
        self._reaching = asyncio.Lock()
        self._tasks = TaskSet("bridge")
        self._answered = asyncio.Event()

    async def take(self, data: bytes) -> None:
        """Pass on one line of the client's."""
        try:
            messages = decode(data)
        except WireError as error:
            await self.tell([error.encoded(None)])
            return
        # A daemon that somebody has stopped stays so until it is needed.
        asks = any(isinstance(message, Request) for message in messages)
        failure = await self._reach() if asks else None
        wanted = self._bridge.from_client(messages)
        if failure is not None:
            await self.tell(self._bridge.refused(failure))
        elif wanted:
            await self._say(data)

    async def tell(self, messages: Sequence[bytes]) -> None:
        """Give messages to the client."""
        for message in messages:
            await self._out.write(one_line(message) + b"\n")

    async def settle(self) -> None:
        """Wait a moment for the answers that are still to come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                while self._bridge.pending:
                    self._answered.clear()
                    await self._answered.wait()

    async def close(self) -> None:
        if self._line is not None:
            await self._line.close()
        await self._tasks.close()

    async def _say(self, message: bytes) -> None:
        # Where the line is gone, whoever hears on it has noticed, or will, and gives up what is pending.
        with contextlib.suppress(ConnectionClosed):
            if self._line is not None:
                await self._line.send(message.decode())

    async def _hear(self, line: ClientConnection) -> None:
        with contextlib.suppress(ConnectionError):
            with contextlib.suppress(ConnectionClosed):
                async for frame in line:
                    with contextlib.suppress(WireError):
                        await self.tell(self._bridge.from_daemon(frame.encode() if isinstance(frame, str) else frame))
                    self._answered.set()
            self._line = None
            await self.tell(self._bridge.lost())
            # A client that waits for its handshake says nothing that would bring us to try again.
            if self._bridge.pending and (failure := await self._reach()) is not None:
                await self.tell(self._bridge.refused(failure))
        self._answered.set()

    async def _reach(self) -> WireError | None:
        """See that there is a line, and that the daemon knows the client; why not, where it cannot be had."""
        async with self._reaching:
            trouble = "" if self._line is None else None
            for pause in (*_PAUSES, None) if trouble is not None else ():
                try:
                    self._line = await self._dial()
                    break
                except InvalidStatus as error:
                    trouble = f"it answers HTTP {error.response.status_code}"
                    if error.response.status_code == 404:
                        return WireError(CONNECTION_CLOSED, "the workspace of this bridge does not exist any more")
                except Failure as failure:
                    trouble = f"{failure.message} ({failure.remedy})"
                    if failure.code != "daemon-unreachable":
                        return WireError(CONNECTION_CLOSED, trouble)
                except (OSError, InvalidHandshake) as error:
                    trouble = str(error) or type(error).__name__
                if pause is None:
                    return WireError(CONNECTION_CLOSED, f"the daemon of Rookery cannot be reached: {trouble}")
                await asyncio.sleep(pause)
            if trouble is not None and self._line is not None:
                for message in self._bridge.restored():
                    await self._say(message)
                self._tasks.start(self._hear(self._line), "hear")
            return None

    async def _dial(self) -> ClientConnection:
        socket = await asyncio.to_thread(self._find)
        # What dies on this machine is noticed without asking, and what is busy is not dead.
        return await unix_connect(
            socket, f"ws://rookery{self._path}", compression=None, max_size=None, ping_interval=None, close_timeout=2
        )

    def _find(self) -> str:
        """The socket of the daemon, which is started if it may be."""
        link.reach(start=self._start).close()
        return (link.runtime() or {}).get("socket") or str(places.state_folder() / "rookery.sock")
