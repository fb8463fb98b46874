"""What a scripted model was asked and how it answered, to assert on: in memory, and as lines of JSON in a file."""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import msgspec
from msgspec import Raw, Struct

from rookery.system.clock import SYSTEM_CLOCK, Clock, iso
from rookery.system.errors import RookeryError
from rookery.testing.asked import Asked
from rookery.testing.place import Place

KEPT = 1000

Kind = Literal["step", "title", "summary", "unforeseen", "malformed"]
End = Literal["answered", "cut-off", "client-gone"]


class Record(Struct, kw_only=True):
    """One request. `conversation`, `turn` and `step` are of the step that answered or, if none did, of the nearest."""

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
        """The request as it came."""
        return msgspec.json.decode(self.request)


class RequestLog(Sequence[Record]):
    """The last `kept` requests; `dropped` is how many there were before them."""

    def __init__(
        self,
        file: Path | None = None,
        *,
        tell: Callable[[Record], None] | None = None,
        kept: int = KEPT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.dropped = 0
        self._records: deque[Record] = deque(maxlen=kept)
        self._tell = tell
        self._clock = clock
        self._news = asyncio.Event()
        self._file: int | None = None
        if file is not None:
            try:
                # What users said to agents is for the owner's eyes.
                self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            except OSError as error:
                told = f"the log {file} cannot be written: {error.strerror}"
                raise RookeryError("invalid-input", told, "name a file in a folder of yours") from None

    def add(self, kind: Kind, asked: Asked | None, place: Place | None = None, problem: str | None = None) -> Record:
        made = Record(number=self.dropped + len(self) + 1, at=iso(self._clock.wall()), kind=kind, problem=problem)
        if asked is not None:
            made.session, made.user = asked.session_header, asked.said[-1] if asked.said else None
            made.replies, made.tools, made.results = asked.replies, asked.tools, asked.results
            made.request = asked.raw
        if place is not None:
            made.conversation, made.turn, made.step = place.conversation, place.turn, place.step
        if self._file is not None:
            os.write(self._file, msgspec.json.encode(made) + b"\n")
        self.dropped += len(self._records) == self._records.maxlen
        self._records.append(made)
        self._wake()
        if self._tell is not None:
            self._tell(made)
        return made

    def end(self, record: Record, how: End) -> None:
        """The answer is over. The file, which tells of a request when it comes, does not tell this."""
        record.ended = how
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def wait_for(self, wanted: Callable[[Record], bool]) -> Record:
        """The first request that fits, also one that has come already. Whoever waits sets the time limit."""
        while (found := next(filter(wanted, self), None)) is None:
            await self._news.wait()
        return found

    @property
    def unforeseen(self) -> list[Record]:
        return [record for record in self if record.kind in ("unforeseen", "malformed")]

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(tuple(self._records))

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return self._records[index] if isinstance(index, int) else tuple(self._records)[index]
