"""A server as a child process: one JSON message a line on its stdin and stdout."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rookery.system.buffers import Ring
from rookery.system.child import Child, Ladder
from rookery.system.spawn import Spawner
from rookery.system.tasks import TaskSet
from rookery.wire.channel import ChannelClosed, Heard, Lost, Waiting
from rookery.wire.incoming import Ear, Framing, Incoming
from rookery.wire.jsonrpc import Id, Response, WireError, decode
from rookery.wire.lines import one_line
from rookery.wire.outbox import Outbox
from rookery.wire.pending import Pending

logger = logging.getLogger("rookery.mcp.stdio")

_CHUNK = 65_536
_NOISE_KEPT = 5
_SHOWN = 200
_LAST_WORDS_SECONDS = 1.0


@dataclass(frozen=True)
class Program:
    """What to start. The environment is stated whole."""

    name: str
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    framing: Framing = "lines"


@dataclass
class StdioChannel:
    spawner: Spawner
    program: Program
    errors: Ring = field(default_factory=Ring)
    write_seconds: float = 30.0
    cancels_by_closing: bool = field(default=False, init=False)
    uses_headers: bool = field(default=False, init=False)
    challenge: str | None = field(default=None, init=False)
    gone: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._child: Child | None = None
        self._pending = Pending()
        self._lost: Lost | None = None
        self._tasks = TaskSet(f"stdio {self.program.name}")
        self._noise: deque[str] = deque(maxlen=_NOISE_KEPT)
        self._outbox: Outbox | None = None
        self._ended = asyncio.Event()

    @property
    def strays(self) -> int:
        return self._pending.strays

    async def open(self, heard: Heard, lost: Lost) -> None:
        """Start the program, also for a second time."""
        program = self.program
        self._heard, self._lost = heard, lost
        self.gone = None
        self._ended.clear()
        self._child = await self.spawner.start(
            program.argv,
            name=program.name,
            cwd=program.cwd,
            env=program.env,
            stdin=True,
            stdout=Ear(Incoming(program.framing, self._take, self._note), self._fail, self._closed_output),
            stderr=self.errors,
        )
        assert self._child.stdin is not None
        self._outbox = Outbox(self._child.stdin, self.write_seconds, self._stuck, self._deaf)
        self._tasks.start(self._watch(), "watch")

    def request(self, id_: Id, message: bytes, headers: Mapping[str, str]) -> Coroutine[Any, Any, Response]:
        self._check()
        # Whoever is alone need not wait for others to write with.
        return self._pending.answer(id_, self._post(message, at_once=not self._pending))

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        self._check()
        if (posting := self._post(message)) is not None:
            await posting

    def _post(self, message: bytes, *, at_once: bool = False) -> Awaitable[None] | None:
        """Hand it to the outbox; where it has no room, answers what there is to wait for."""
        assert self._outbox is not None
        framed = self._framed(message)
        return None if self._outbox.post(framed, at_once=at_once) else self._post_later(self._outbox, framed)

    def _framed(self, message: bytes) -> bytes:
        if self.program.framing == "content-length":
            return b"Content-Length: %d\r\n\r\n%b" % (len(message), message)
        # What was relayed as it came may have line breaks between its parts.
        return one_line(message) + b"\n"

    async def _post_later(self, outbox: Outbox, framed: bytes) -> None:
        while not outbox.post(framed):
            await outbox.room()
            self._check()

    def post(self, id_: Id, message: bytes, waiting: Waiting) -> bool:
        if self.gone is not None or self._outbox is None:
            return False
        if not self._outbox.post(self._framed(message), at_once=not self._pending):
            return False
        self._pending.wait(id_, waiting)
        return True

    def forget(self, id_: Id) -> None:
        self._pending.forget(id_)

    async def agreed(self, revision: str) -> None:
        """Nothing changes."""

    def diagnosis(self) -> str:
        told = [f"it printed {line!r}, which is no message" for line in self._noise]
        stderr = [line[-_SHOWN:] for line in self.errors.text().strip().splitlines()[-3:]]
        return "; ".join([*told, *(["stderr: " + " | ".join(stderr)] if stderr else [])])

    async def close(self) -> None:
        self._fail("closed")
        if self._child is not None:
            await self._child.stop(Ladder())
        await self._tasks.close()

    # ---- reading

    def _take(self, data: bytes) -> None:
        try:
            messages = decode(data)
        except WireError:
            self._note(data)
            return
        self._pending.take(messages, self._heard)

    def _note(self, line: bytes) -> None:
        text = line[:_SHOWN].decode("utf-8", "replace")
        self._noise.append(text)
        logger.debug("%s printed %r, which is no message", self.program.name, text)

    async def _watch(self) -> None:
        assert self._child is not None
        code = await self._child.wait()
        # What it said last may still be in the pipe.
        await self._child.drained(_LAST_WORDS_SECONDS)
        self._fail(f"it ended with code {code}")

    # ---- the end

    def _check(self) -> None:
        if self.gone is not None:
            detail = self.diagnosis()
            raise ChannelClosed(f"{self.program.name}: {self.gone}{f' ({detail})' if detail else ''}")

    def _closed_output(self) -> None:
        self._tasks.start(self._fail_unless_it_ends("it closed its output"), "end")

    def _deaf(self) -> None:
        self._tasks.start(self._fail_unless_it_ends("it closed its input"), "end")

    async def _fail_unless_it_ends(self, reason: str) -> None:
        """A pipe is closed. Most often the program has ended, which `_watch` can say more about."""
        try:
            async with asyncio.timeout(2 * _LAST_WORDS_SECONDS):
                await self._ended.wait()
        except TimeoutError:
            self._fail(reason)

    def _stuck(self) -> None:
        # Half a message is in the pipe: nothing after it could be understood.
        self._fail(f"it has not read its input for {self.write_seconds:g} s")

    def _fail(self, reason: str) -> None:
        if self.gone is not None:
            return
        self.gone = reason
        if self._outbox is not None:
            self._outbox.close()
        self._ended.set()
        self._pending.fail(ChannelClosed(f"{self.program.name}: {reason}; {self.diagnosis()}".rstrip("; ")))
        if self._lost is not None:
            self._lost(reason)
