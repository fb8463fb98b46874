"""`rookery bridge`: relay MCP between stdin/stdout of this process and the daemon's Unix socket."""

import asyncio
import contextlib
from collections.abc import Sequence

from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from rookery.cli.ws.common import WorkspaceClient, quote_segment
from rookery.daemon_client.connection import connect_or_start, read_authorization, read_runtime_file
from rookery.daemon_client.failure import Failure, report_failure
from rookery.system.fs import paths
from rookery.system.tasks import TaskSet
from rookery.wire.bridge import Bridge
from rookery.wire.protocol.framing import LineSplitter, join_lines
from rookery.wire.protocol.messages import CONNECTION_CLOSED, INVALID_REQUEST, Request, WireError, decode_messages
from rookery.wire.server.stdio import LINE_BYTES, LineWriter, open_stdio

_CHUNK = 65_536
# Seconds between attempts: one daemon may be stopping, and the next not yet started.
_PAUSES = (0.1, 0.3, 1.0, 2.0, 4.0)
# How long to wait for pending responses after the client has closed its end.
_DRAIN_SECONDS = 2.0


def run_bridge(workspace: str | None, project: str | None, mode: str | None, *, start: bool) -> int:
    """Relay until the client closes its end. Report a workspace that does not exist at once."""
    try:
        path = f"{_endpoint_path(workspace, project, start)}/ws" if workspace is not None else "/ws"
        asyncio.run(_relay(path if mode is None else f"{path}?mode={mode}", start))
    except Failure as failure:
        return report_failure(failure)
    return 0


def _endpoint_path(workspace: str, project: str | None, start: bool) -> str:
    """Return the path of a workspace's endpoints; the daemon checks there whether the caller may use them."""
    try:
        record = WorkspaceClient(not start, project).find(workspace)
    except Failure as failure:
        # A process that works for a workspace may not list workspaces, and can only mean its own.
        parts = workspace.split("/", 1) if project is None else [project, workspace]
        if failure.code != "forbidden" or len(parts) != 2:
            raise
        return f"/w/{quote_segment(parts[0])}/{quote_segment(parts[1])}"
    return f"/w/{quote_segment(record['project'])}/{quote_segment(record['name'])}"


async def _relay(path: str, start: bool) -> None:
    reader, out = await open_stdio()
    relay = Relay(path, out, start=start)
    lines = LineSplitter(LINE_BYTES)
    try:
        while data := await reader.read(_CHUNK):
            for line in lines.feed(data):
                if line is None:
                    problem = f"a message must not be longer than {LINE_BYTES} bytes"
                    await relay.send_to_client([WireError(INVALID_REQUEST, problem).encode(None)])
                elif line.strip():
                    await relay.forward(line)
        await relay.wait_for_responses()
    except ConnectionError:
        pass  # the client has ended without notice
    finally:
        await relay.close()
        with contextlib.suppress(ConnectionError):
            await out.close()


class Relay:
    """The connection to the daemon. It is made when the client sends a request and there is no connection."""

    def __init__(self, path: str, out: LineWriter, *, start: bool) -> None:
        self._path = path
        self._out = out
        self._start = start
        self._bridge = Bridge()
        self._connection: ClientConnection | None = None
        self._connect_lock = asyncio.Lock()
        self._tasks = TaskSet("bridge")
        self._response_received = asyncio.Event()

    async def forward(self, data: bytes) -> None:
        """Forward one line of the client to the daemon."""
        try:
            messages = decode_messages(data)
        except WireError as error:
            await self.send_to_client([error.encode(None)])
            return
        # A daemon that was stopped is started again only when it is needed.
        has_request = any(isinstance(message, Request) for message in messages)
        failure = await self._ensure_connected() if has_request else None
        should_forward = self._bridge.on_client_messages(messages)
        if failure is not None:
            await self.send_to_client(self._bridge.fail_pending(failure))
        elif should_forward:
            await self._send_to_daemon(data)

    async def send_to_client(self, messages: Sequence[bytes]) -> None:
        """Send messages to the client."""
        for message in messages:
            await self._out.write(join_lines(message) + b"\n")

    async def wait_for_responses(self) -> None:
        """Wait a short time for the pending responses."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while self._bridge.pending:
                    self._response_received.clear()
                    await self._response_received.wait()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
        await self._tasks.close()

    async def _send_to_daemon(self, message: bytes) -> None:
        # If the connection is closed, the receiving task notices that and fails the pending requests.
        with contextlib.suppress(ConnectionClosed):
            if self._connection is not None:
                await self._connection.send(message.decode())

    async def _receive(self, connection: ClientConnection) -> None:
        """Pass messages of the daemon to the client until the connection ends; then connect again if needed."""
        with contextlib.suppress(ConnectionError):
            with contextlib.suppress(ConnectionClosed):
                async for frame in connection:
                    with contextlib.suppress(WireError):
                        await self.send_to_client(
                            self._bridge.on_daemon_frame(frame.encode() if isinstance(frame, str) else frame)
                        )
                    self._response_received.set()
            self._connection = None
            await self.send_to_client(self._bridge.on_daemon_lost())
            # A client that waits for its handshake sends nothing that would cause another attempt to connect.
            if self._bridge.pending and (failure := await self._ensure_connected()) is not None:
                await self.send_to_client(self._bridge.fail_pending(failure))
        self._response_received.set()

    async def _ensure_connected(self) -> WireError | None:
        """Connect to the daemon and restore the client's state, unless connected. Return an error if that fails."""
        async with self._connect_lock:
            problem = "" if self._connection is None else None
            for pause in (*_PAUSES, None) if problem is not None else ():
                try:
                    self._connection = await self._connect()
                    break
                except InvalidStatus as error:
                    problem = f"it responds with HTTP {error.response.status_code}"
                    if error.response.status_code == 403:
                        return WireError(CONNECTION_CLOSED, "this process was started by Rookery for another workspace")
                    if error.response.status_code == 404:
                        return WireError(CONNECTION_CLOSED, "the workspace of this bridge no longer exists")
                except Failure as failure:
                    problem = f"{failure.message} ({failure.remedy})"
                    if failure.code != "daemon-unreachable":
                        return WireError(CONNECTION_CLOSED, problem)
                except (OSError, InvalidHandshake) as error:
                    problem = str(error) or type(error).__name__
                if pause is None:
                    return WireError(CONNECTION_CLOSED, f"the Rookery daemon cannot be reached: {problem}")
                await asyncio.sleep(pause)
            if problem is not None and self._connection is not None:
                for message in self._bridge.make_restore_messages():
                    await self._send_to_daemon(message)
                self._tasks.start(self._receive(self._connection), "hear")
            return None

    async def _connect(self) -> ClientConnection:
        socket = await asyncio.to_thread(self._find_socket)
        # Without pings: the socket closes when a process on this machine ends, and a busy process is not dead.
        return await unix_connect(
            socket,
            f"ws://rookery{self._path}",
            additional_headers=await asyncio.to_thread(read_authorization),
            compression=None,
            max_size=None,
            ping_interval=None,
            close_timeout=2,
        )

    def _find_socket(self) -> str:
        """Return the path of the daemon's socket; start the daemon first if that is allowed."""
        connect_or_start(start=self._start).close()
        return (read_runtime_file() or {}).get("socket") or str(paths.state_folder() / "rookery.sock")
