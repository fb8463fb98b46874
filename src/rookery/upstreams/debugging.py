"""Tries a server from the beginning, on a connection of its own, and tells what happened at each step."""

import shlex
import shutil
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from rookery.gateway.catalog import CAPABILITY, LISTS, Kind
from rookery.system.buffers import Ring
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.upstreams.connecting import IDENTITY, needs_approval
from rookery.upstreams.connector import Connector, program
from rookery.upstreams.definition import Definition
from rookery.upstreams.showing import redactor_for, shown
from rookery.wire.channel import Channel, ChannelClosed, Heard, Lost, NoSuchTransport, SessionLost
from rookery.wire.client import Client
from rookery.wire.connect import connect
from rookery.wire.jsonrpc import Id, Response, WireError

T = TypeVar("T")

_SHOWN = 300
_LINES = 20
# What a step can come to without anything being wrong with us.
_FAILURES = (RookeryError, WireError, ChannelClosed, NoSuchTransport, SessionLost)


class Step(msgspec.Struct):
    """`at_ms` is since the first one."""

    what: str
    at_ms: float
    took_ms: float
    ok: bool
    told: str


class Examination(msgspec.Struct):
    """All that was learned; `error` is what it came to where it did not connect."""

    name: str
    connected: bool
    error: str | None
    remedy: str
    steps: list[Step]
    era: str | None
    info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    counts: Mapping[str, int]
    stderr: list[str]
    problems: list[str] = []


class _Method(msgspec.Struct):
    method: str = "?"


class _Refusal(msgspec.Struct):
    code: int = 0
    message: str = ""


@dataclass
class _Record:
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
        except _FAILURES as error:
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


class _Watched:
    """A channel whose every step is recorded."""

    def __init__(self, channel: Channel, name: str, record: _Record) -> None:
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
    def cancels_by_closing(self) -> bool:
        return self._channel.cancels_by_closing

    @property
    def uses_headers(self) -> bool:
        return self._channel.uses_headers

    def diagnosis(self) -> str:
        return self._channel.diagnosis()

    async def close(self) -> None:
        await self._record.step(f"close {self._name}", self._channel.close())


async def examine(definition: Definition, directory: Path, checkout: Path | None, connector: Connector) -> Examination:
    """A server that runs already is left alone: this is another one beside it."""
    if not await connector.approved(definition, checkout):
        raise needs_approval(definition.name)
    record, errors = _Record(definition), Ring()
    _resolve(record, directory)
    found = Examination(definition.name, False, None, "", record.steps, None, {}, {}, {}, [])
    try:
        await _connect(found, record, connector, directory, errors)
    except _FAILURES as error:
        found.error = record.clean(str(error))
        found.remedy = record.clean(error.remedy) if isinstance(error, RookeryError) else ""
    found.stderr = [record.clean(line) for line in errors.text().splitlines()[-_LINES:]]
    return found


async def _connect(found: Examination, record: _Record, connector: Connector, directory: Path, errors: Ring) -> None:
    definition = record.definition
    newer, older = connector.channels(definition, directory, errors)
    name = "process" if definition.kind == "local" else "Streamable HTTP"
    client, _ = await connect(
        lambda channel: Client(channel, IDENTITY, definition.timeouts),
        _Watched(newer, name, record),
        older=_Watched(older, "HTTP+SSE", record) if older is not None else None,
    )
    try:
        found.era, found.info, found.capabilities = client.revision, client.info, client.capabilities
        found.counts = {kind: await _count(client, kind) for kind in LISTS if CAPABILITY[kind] in client.capabilities}
        found.connected = True
    finally:
        await client.close()


async def _count(client: Client, kind: Kind) -> int:
    return len(await client.list_all(*LISTS[kind][:2]))


def _resolve(record: _Record, directory: Path) -> None:
    """What the definition comes to, told by names only."""
    definition = record.definition
    written = shown(definition)["written"]
    if definition.kind == "remote":
        headers = ", ".join(definition.headers) or "none"
        record.note("resolve", f"{written.get('url', '')}; headers: {headers}")
        return
    started = program(definition, directory)
    path = shutil.which(started.argv[0], path=started.env.get("PATH"))
    where = path or f"{started.argv[0]} is not on the PATH"
    words = shlex.join([*_words(written, "command"), *_words(written, "args")])
    told = f"{words} -> {where}; in {started.cwd}; variables: {', '.join(definition.environment) or 'none'}"
    record.note("resolve", told, ok=path is not None)


def _words(written: Mapping[str, Any], key: str) -> list[str]:
    found: Any = written.get(key, [])
    return [str(word) for word in cast(list[Any], found)] if isinstance(found, list) else [str(found)]
