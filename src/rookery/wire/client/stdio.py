"""A transport to a server that is a child process: one JSON message per line on stdin and stdout.

All messages that are sent in one turn of the event loop are one write.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rookery.system.causes import describe_end, find_cause
from rookery.system.confinement.policy import ConfinementPolicy
from rookery.system.process.child import Child, PipeWriter, StopTimeouts, TailBuffer
from rookery.system.process.spawn import Spawner, WorksFor
from rookery.system.tasks import TaskSet
from rookery.wire.client.transport import HandleLoss, HandleMessage, PendingResponses, ResponseWaiter, TransportClosed
from rookery.wire.protocol.framing import Framing, MessageDecoder, MessageReader, join_lines
from rookery.wire.protocol.messages import RequestId, Response, WireError, decode_messages
from rookery.wire.timing import Deadline

# A sender has to wait while more than this is buffered.
_BUFFER_BYTES = 1_048_576

logger = logging.getLogger("rookery.mcp.stdio")

_CHUNK = 65_536
_NOISE_LINES_KEPT = 5
_SHOWN_CHARACTERS = 200
_DRAIN_SECONDS = 1.0


class WriteBuffer:
    """Buffers writes to the stdin of a process.

    `on_stuck` is called when the process has read nothing for `seconds`, `on_closed` when it has closed the pipe.
    """

    def __init__(
        self, pipe: PipeWriter, seconds: float, on_stuck: Callable[[], None], on_closed: Callable[[], None]
    ) -> None:
        self._pipe = pipe
        self._seconds = seconds
        self._stuck_deadline = Deadline(on_stuck)
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._size = 0
        self._draining = self._closed = self._flush_scheduled = False
        # Each waiting sender has its own future, so that on close all of them continue before their time limits end
        # them.
        self._waiters: dict[asyncio.Future[None], None] = {}
        pipe.on_writable = self._on_drained

    def post(self, data: bytes, *, at_once: bool = False) -> bool:
        """Write data soon, together with other posts, or at once. Return False if the buffer is full or closed."""
        if self._draining or self._closed or self._size > _BUFFER_BYTES:
            return False
        if at_once and not self._waiting:
            self._write(data)
            return True
        self._waiting.append(data)
        self._size += len(data)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        return True

    async def wait_for_space(self) -> None:
        """Wait until the buffer may have space."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    def close(self) -> None:
        """Stop writing, and wake all senders that wait."""
        self._closed = True
        self._pipe.on_writable = None
        self._stuck_deadline.cancel()
        self._wake_waiters()

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._closed or not self._waiting:
            return
        data = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        self._write(data)
        self._wake_waiters()

    def _write(self, data: bytes) -> None:
        try:
            if self._pipe.write(data):
                return
        except ConnectionError:
            self._on_pipe_closed()
            return
        if self._pipe.is_broken:
            self._on_pipe_closed()
        elif self._pipe.is_full:
            self._draining = True
            self._stuck_deadline.set(self._seconds)

    def _on_drained(self) -> None:
        if self._pipe.is_broken:
            self._on_pipe_closed()
        elif self._draining:
            self._draining = False
            self._stuck_deadline.set(None)
            self._wake_waiters()

    def _on_pipe_closed(self) -> None:
        """Handle a closed pipe. Senders wait until the buffer is closed."""
        self._draining = True
        self._pipe.on_writable = None
        self._stuck_deadline.cancel()
        self._on_closed()

    def _wake_waiters(self) -> None:
        if self._closed or not self._draining:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)


@dataclass(frozen=True)
class ServerProgram:
    """The program to start. `env` is its whole environment.

    `explain_failure` returns what may have made it fail, from its output; empty if it does not know.
    """

    name: str
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    framing: Framing = "lines"
    works_for: WorksFor = None
    explain_failure: Callable[[str], str] = lambda output: ""
    confinement: ConfinementPolicy | None = None


@dataclass
class StdioTransport:
    """A transport over the stdin and stdout of a child process."""

    spawner: Spawner
    program: ServerProgram
    errors: TailBuffer = field(default_factory=TailBuffer)
    write_seconds: float = 30.0
    cancels_by_closing: bool = field(default=False, init=False)
    uses_headers: bool = field(default=False, init=False)
    challenge: str | None = field(default=None, init=False)
    close_reason: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._child: Child | None = None
        self._pending = PendingResponses()
        self._on_lost: HandleLoss | None = None
        self._tasks = TaskSet(f"stdio {self.program.name}", on_crash=lambda name, error: self._fail(f"{name} crashed"))
        self._noise: deque[str] = deque(maxlen=_NOISE_LINES_KEPT)
        self._write_buffer: WriteBuffer | None = None
        self._ended = asyncio.Event()

    @property
    def strays(self) -> int:
        return self._pending.strays

    async def open(self, on_message: HandleMessage, on_lost: HandleLoss) -> None:
        """Start the program. Can be called again after it has ended."""
        program = self.program
        self._on_message = on_message
        self._on_lost = on_lost
        self.close_reason = None
        self._ended.clear()
        self._child = await self.spawner.start(
            program.argv,
            name=program.name,
            cwd=program.cwd,
            env=program.env,
            stdin=True,
            stdout=MessageReader(
                MessageDecoder(program.framing, self._take, self._record_noise), self._fail, self._on_output_closed
            ),
            stderr=self.errors,
            works_for=program.works_for,
            confinement=program.confinement,
        )
        assert self._child.stdin is not None
        self._write_buffer = WriteBuffer(self._child.stdin, self.write_seconds, self._on_stuck, self._on_input_closed)
        self._tasks.start(self._watch(), "watch")

    def request(self, id_: RequestId, message: bytes, headers: Mapping[str, str]) -> Coroutine[Any, Any, Response]:
        self._check_open()
        # With no other request in flight there is nothing to combine the write with.
        return self._pending.wait_for_response(id_, self._post(message, at_once=not self._pending))

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        self._check_open()
        if (posting := self._post(message)) is not None:
            await posting

    def _post(self, message: bytes, *, at_once: bool = False) -> Awaitable[None] | None:
        """Pass a message to the write buffer. Return an awaitable if the buffer is full, else None."""
        assert self._write_buffer is not None
        framed = self._frame(message)
        return (
            None if self._write_buffer.post(framed, at_once=at_once) else self._post_later(self._write_buffer, framed)
        )

    def _frame(self, message: bytes) -> bytes:
        if self.program.framing == "content-length":
            return b"Content-Length: %d\r\n\r\n%b" % (len(message), message)
        # A relayed message may have line breaks between its tokens.
        return join_lines(message) + b"\n"

    async def _post_later(self, outbox: WriteBuffer, framed: bytes) -> None:
        while not outbox.post(framed):
            await outbox.wait_for_space()
            self._check_open()

    def post(self, id_: RequestId, message: bytes, waiter: ResponseWaiter, headers: Mapping[str, str]) -> bool:
        if self.close_reason is not None or self._write_buffer is None:
            return False
        if not self._write_buffer.post(self._frame(message), at_once=not self._pending):
            return False
        self._pending.add_waiter(id_, waiter)
        return True

    def forget(self, id_: RequestId) -> None:
        self._pending.remove_waiter(id_)

    async def on_revision_agreed(self, revision: str) -> None:
        """Do nothing: the transport does not depend on the revision."""

    def list_problems(self) -> list[str]:
        return [f"it printed {line!r}, which is not a valid message" for line in self._noise]

    def diagnosis(self) -> str:
        stderr = [line[-_SHOWN_CHARACTERS:] for line in self.errors.text().strip().splitlines()[-3:]]
        return "; ".join([*self.list_problems(), *(["stderr: " + " | ".join(stderr)] if stderr else [])])

    async def close(self) -> None:
        self._fail("closed")
        if self._child is not None:
            await self._child.stop(StopTimeouts())
        await self._tasks.close()

    # Reading

    def _take(self, data: bytes) -> None:
        try:
            messages = decode_messages(data)
        except WireError:
            self._record_noise(data)
            return
        self._pending.dispatch(messages, self._on_message)

    def _record_noise(self, line: bytes) -> None:
        text = line[:_SHOWN_CHARACTERS].decode("utf-8", "replace")
        self._noise.append(text)
        logger.debug("%s printed %r, which is not a valid message", self.program.name, text)

    async def _watch(self) -> None:
        assert self._child is not None
        code = await self._child.wait()
        # Its last output may still be in the pipe.
        await self._child.wait_drained(_DRAIN_SECONDS)
        cause = find_cause(code, self.diagnosis(), (self.program.cwd,))
        outcome = f"it exited with code {code}" if code >= 0 else f"it {describe_end(code)}"
        explained = self.program.explain_failure(self.errors.text())
        # A sandbox explains a missing permission better than the error of the system does.
        if cause is not None and not (explained and self.program.confinement is not None):
            explained = cause.message
        self._fail(f"{outcome}: {explained}" if explained else outcome)

    # Failure and exit

    def _check_open(self) -> None:
        if self.close_reason is not None:
            detail = self.diagnosis()
            raise TransportClosed(f"{self.program.name}: {self.close_reason}{f' ({detail})' if detail else ''}")

    def _on_output_closed(self) -> None:
        self._tasks.start(self._fail_unless_it_ends("it closed its output"), "end")

    def _on_input_closed(self) -> None:
        self._tasks.start(self._fail_unless_it_ends("it closed its input"), "end")

    async def _fail_unless_it_ends(self, reason: str) -> None:
        """Fail with this reason, unless the program ends soon: `_watch` then gives a better one."""
        try:
            async with asyncio.timeout(2 * _DRAIN_SECONDS):
                await self._ended.wait()
        except TimeoutError:
            self._fail(reason)

    def _on_stuck(self) -> None:
        # Half a message is in the pipe, so nothing after it could be decoded.
        self._fail(f"it has not read its input for {self.write_seconds:g} s")

    def _fail(self, reason: str) -> None:
        if self.close_reason is not None:
            return
        self.close_reason = reason
        if self._write_buffer is not None:
            self._write_buffer.close()
        self._ended.set()
        self._pending.fail(TransportClosed(f"{self.program.name}: {reason}; {self.diagnosis()}".rstrip("; ")))
        if self._on_lost is not None:
            self._on_lost(reason)
