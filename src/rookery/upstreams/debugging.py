"""Tries a server from the beginning, on a connection of its own, and tells what happened at each step."""

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from rookery.gateway.catalog import CAPABILITY, LISTS, Kind
from rookery.system.buffers import Ring
from rookery.system.errors import RookeryError
from rookery.upstreams.connecting import Opening
from rookery.upstreams.connector import Connector, program
from rookery.upstreams.definition import Definition
from rookery.upstreams.recording import FAILURES, Record, Step, Watched
from rookery.upstreams.showing import shown
from rookery.upstreams.signin.messages import Asked, Step as Signing, Taken
from rookery.upstreams.signin.signins import SignIns
from rookery.upstreams.waiting import NotYet
from rookery.wire.channel import Channel
from rookery.wire.client import Client

_LINES = 20


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


@dataclass(frozen=True)
class _Tapped(Connector):
    """Makes the channels that another connector would make, and listens in."""

    record: Record

    def channels(self, definition: Definition, directory: Path, errors: Ring) -> tuple[Channel, Channel | None]:
        newer, older = super().channels(definition, directory, errors)
        name = "process" if definition.kind == "local" else "Streamable HTTP"
        watched = Watched(older, "HTTP+SSE", self.record) if older is not None else None
        return Watched(newer, name, self.record), watched


async def examine(definition: Definition, directory: Path, checkout: Path | None, connector: Connector) -> Examination:
    """A server that runs already is left alone: this is another one beside it."""
    record, errors = Record(definition), Ring()
    tapped = _Tapped(connector.spawner, connector.http, connector.approved, connector.signins, record)
    found = Examination(definition.name, False, None, "", record.steps, None, {}, {}, {}, [])
    _resolve(record, directory, connector.signins)
    try:
        await _try(found, Opening(tapped, definition, directory, checkout, errors))
    except FAILURES as error:
        if isinstance(error, RookeryError) and error.code == "needs-approval":
            raise
        found.error = record.clean(str(error))
        found.remedy = record.clean(error.remedy) if isinstance(error, RookeryError) else ""
        if isinstance(error, NotYet) and connector.signins.credentials(definition) is not None:
            await _look(record, connector.signins)
    record.steps.sort(key=lambda step: step.at_ms)
    found.stderr = [record.clean(line) for line in errors.text().splitlines()[-_LINES:]]
    return found


async def _look(record: Record, signins: SignIns) -> None:
    """What signing in would meet."""

    def heard(told: Signing | Asked | Taken) -> None:
        if isinstance(told, Signing):
            record.note(f"sign-in: {told.what}", told.told, ok=told.ok)

    try:
        looked = await record.step("sign-in: look", signins.look(record.definition, heard))
    except RookeryError:
        return
    told = f"{looked.issuer} would ask you" if looked.registrable else "no client can be registered"
    record.note("sign-in", told, ok=looked.registrable)


async def _try(found: Examination, opening: Opening) -> None:
    client, _ = await opening.open(None, lambda notification: None)
    try:
        found.era, found.info, found.capabilities = client.revision, client.info, client.capabilities
        found.counts = {kind: await _count(client, kind) for kind in LISTS if CAPABILITY[kind] in client.capabilities}
        found.connected = True
    finally:
        await client.close()


async def _count(client: Client, kind: Kind) -> int:
    return len(await client.list_all(*LISTS[kind][:2]))


def _resolve(record: Record, directory: Path, signins: SignIns) -> None:
    """What the definition comes to, told by names only."""
    definition = record.definition
    written = shown(definition)["written"]
    if definition.kind == "remote":
        headers = ", ".join(definition.headers) or "none"
        record.note("resolve", f"{written.get('url', '')}; headers: {headers}")
        if (issuer := signins.signed_in(definition)) is not None:
            record.note("sign-in", f"with a token from {issuer}")
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
