"""A channel that is listened in to: what was sent, what came of it, and how long that took."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.upstreams.definition import Definition
from rookery.upstreams.showing import redactor_for
from rookery.wire.channel import Channel, ChannelClosed, Heard, Lost, NoSuchTransport, SessionLost
from rookery.wire.jsonrpc import Id, Response, WireError

T = TypeVar("T")

_SHOWN = 300
# What a step can come to without anything being wrong with us.
FAILURES = (RookeryError, WireError, ChannelClosed, NoSuchTransport, SessionLost)


class Step(msgspec.Struct):
    """`at_ms` is since the first one."""

    what: str
    at_ms: float
    took_ms: float
    ok: bool
    told: str


class _Method(msgspec.Struct):
    method: str = "answer"


class _Refusal(msgspec.Struct):
    code: int = 0
    message: str = ""


@dataclass
class Record:
    """Every text that leaves it is without the values of headers and variables."""

    definition: Definition
    steps: list[Step] = field(default_factory=list[Step])

    def __post_init__(self) -> None:
        self._began = SYSTEM_CLOCK.monotonic()
        self.clean = redactor_for(self.definition).clean

    def note(self, what: str, told: str, *, ok: bool = True, since: float | None = None) -> None:
        now = SYSTEM_CLOCK.monotonic()
        began = now if since is None else since
        at, took = (round(1000 * seconds, 1) for seconds in (began - self._began, now - began))
        self.steps.append(Step(what, at, took, ok, self.clean(told)[:_SHOWN]))

    async def step(self, what: str, work: Awaitable[T], told: str = "") -> T:
        since = SYSTEM_CLOCK.monotonic()
        try:
            found = await work
        except FAILURES as error:
            self.note(what, str(error) or type(error).__name__, ok=False, since=since)
            raise
        except BaseException:
            self.note(what, "given up", ok=False, since=since)
            raise
        self.note(what, _answer(found) if isinstance(found, Response) else told, since=since)
        return found


def _answer(response: Response) -> str:
    if response.error is None:
        return f"answered, {len(bytes(response.result))} bytes"
    refusal = msgspec.json.decode(response.error, type=_Refusal)
    return f"refused: {refusal.message} ({refusal.code})"


class Watched:
    """A channel whose every step is recorded."""

    def __init__(self, channel: Channel, name: str, record: Record) -> None:
        self._channel, self._name, self._record = channel, name, record

    async def open(self, heard: Heard, lost: Lost) -> None:
        await self._record.step(f"open {self._name}", self._channel.open(heard, lost))

    async def request(self, id_: Id, message: bytes, headers: Mapping[str, str]) -> Response:
        method = msgspec.json.decode(message, type=_Method).method
        return await self._record.step(method, self._channel.request(id_, message, headers))

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        method = msgspec.json.decode(message, type=_Method).method
        await self._record.step(method, self._channel.send(message, headers), "sent")

    async def agreed(self, revision: str) -> None:
        await self._channel.agreed(revision)

    @property
    def gone(self) -> str | None:
        return self._channel.gone

    @property
    def challenge(self) -> str | None:
        return self._channel.challenge

    @property
    def cancels_by_closing(self) -> bool:
        return self._channel.cancels_by_closing

    @property
    def uses_headers(self) -> bool:
        return self._channel.uses_headers

    def diagnosis(self) -> str:
        return self._channel.diagnosis()

    async def close(self) -> None:
        await self._record.step(f"close {self._name}", self._channel.close())
