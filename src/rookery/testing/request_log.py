"""Log the requests and replies of a scripted model for assertions: in memory, and as lines of JSON in a file."""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import msgspec
from msgspec import Raw, Struct

from rookery.system.causes import explain_os_error, find_write_problem
from rookery.system.clock import SYSTEM_CLOCK, Clock, iso
from rookery.system.errors import RookeryError
from rookery.testing.player import ScriptPosition
from rookery.testing.request import ModelRequest

MAX_REQUESTS = 1000

Kind = Literal["step", "title", "summary", "unforeseen", "malformed"]
End = Literal["answered", "cut-off", "client-gone"]


class LoggedRequest(Struct, kw_only=True):
    """One request. `conversation`, `turn` and `step` are those of the step that answered, else of the nearest one."""

    number: int
    at: str
    kind: str
    session: str | None = None
    user: str | None = None
    replies: int = 0
    tools: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    conversation: int | None = None
    turn: int | None = None
    step: int | None = None
    problem: str | None = None
    ended: End | None = None
    request: Raw = Raw(b"null")

    @property
    def body(self) -> dict[str, Any]:
        """The body of the request as received."""
        return msgspec.json.decode(self.request)


class RequestLog(Sequence[LoggedRequest]):
    """The last `max_requests` requests. `dropped` is the number of earlier ones."""

    def __init__(
        self,
        file: Path | None = None,
        *,
        on_request: Callable[[LoggedRequest], None] | None = None,
        max_requests: int = MAX_REQUESTS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.dropped = 0
        self._records: deque[LoggedRequest] = deque(maxlen=max_requests)
        self._on_request = on_request
        self._clock = clock
        self._changed = asyncio.Event()
        self._path = file
        self._file: int | None = None
        if file is not None:
            try:
                # Messages of users to agents may be read by the owner only.
                self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise _unwritable(file, error) from None
            # A file can be created on a full disk even if nothing can be written to it.
            if (obstacle := find_write_problem((file,))) is not None:
                self.close()
                raise RookeryError("invalid-input", f"the log cannot be written: {obstacle.message}", obstacle.remedy)

    def add(
        self,
        kind: Kind,
        request: ModelRequest | None,
        position: ScriptPosition | None = None,
        problem: str | None = None,
    ) -> LoggedRequest:
        """Log a request."""
        record = LoggedRequest(
            number=self.dropped + len(self) + 1, at=iso(self._clock.wall()), kind=kind, problem=problem
        )
        if request is not None:
            record.session = request.session_header
            record.user = request.user_messages[-1] if request.user_messages else None
            record.replies = request.replies
            record.tools = request.tools
            record.results = request.results
            record.request = request.raw
        if position is not None:
            record.conversation = position.conversation
            record.turn = position.turn
            record.step = position.step
        if self._file is not None:
            self._write(msgspec.json.encode(record) + b"\n")
        self.dropped += len(self._records) == self._records.maxlen
        self._records.append(record)
        self._notify()
        if self._on_request is not None:
            self._on_request(record)
        return record

    def _write(self, line: bytes) -> None:
        assert self._file is not None and self._path is not None
        try:
            written = os.write(self._file, line)
            if written < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise _unwritable(self._path, error) from None

    def end(self, record: LoggedRequest, how: End) -> None:
        """Record how the reply ended. The file does not contain this, because a request is written when it arrives."""
        record.ended = how
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for(self, predicate: Callable[[LoggedRequest], bool]) -> LoggedRequest:
        """Wait for the first request that matches, including earlier ones. The caller sets the time limit."""
        while (record := next(filter(predicate, self), None)) is None:
            await self._changed.wait()
        return record

    @property
    def unforeseen(self) -> list[LoggedRequest]:
        """The requests for which the script has no step, and invalid ones."""
        return [record for record in self if record.kind in ("unforeseen", "malformed")]

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[LoggedRequest]:
        return iter(tuple(self._records))

    @overload
    def __getitem__(self, index: int) -> LoggedRequest: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LoggedRequest]: ...
    def __getitem__(self, index: int | slice) -> LoggedRequest | Sequence[LoggedRequest]:
        return self._records[index] if isinstance(index, int) else tuple(self._records)[index]


def _unwritable(path: Path, error: OSError) -> RookeryError:
    """Return the error for a log that cannot be written."""
    cause = explain_os_error(error, path)
    if cause is not None:
        return RookeryError("invalid-input", f"the log cannot be written: {cause.message}", cause.remedy)
    return RookeryError(
        "invalid-input", f"the log {path} cannot be written: {error.strerror}", "use a file in a writable folder"
    )
