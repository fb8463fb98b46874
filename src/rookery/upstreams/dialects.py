"""The text of one configuration file as the definitions in it, whichever program the file was written for."""

import bisect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rookery.system.errors import RookeryError
from rookery.upstreams.definition import Definition, Dialect, Place, Problem, Source, wrong_with_name
from rookery.upstreams.entry import define, switches_off, timeouts_in_ms
from rookery.upstreams.jsonc import JsoncError, Member, Object, line_of, parse, plain
from rookery.upstreams.permissions import Permissions, permissions_in
from rookery.upstreams.substitute import Substitution, Unfit
from rookery.wire.client import Timeouts

CONTAINERS: dict[Dialect, str] = {
    "rookery": "servers",
    "dispatch": "servers",
    "opencode": "mcp",
    "claude": "mcpServers",
}
_MOST_PROBLEMS = 50
# Nobody has as many, and to read more than these would take time in which nothing else is done.
_MOST_SERVERS = 200


@dataclass
class Parsed:
    """What one file says. `off` are the servers of lower sources that it turns off, `failed` those it cannot define."""

    definitions: dict[str, Definition] = field(default_factory=dict[str, Definition])
    off: dict[str, Source] = field(default_factory=dict[str, Source])
    failed: set[str] = field(default_factory=set[str])
    problems: list[Problem] = field(default_factory=list[Problem])
    permissions: Permissions = field(default_factory=Permissions)


@dataclass(frozen=True)
class Container:
    """An object whose members are servers, and the time limits that it sets for all of them."""

    node: Object
    members: tuple[Member, ...]
    timeouts: Timeouts


def parse_file(text: str, path: str, dialect: Dialect, place: Place, substitution: Substitution) -> Parsed:
    """All servers of a file. JsoncError if it is broken as a whole; a single broken entry is told and left out."""
    root = parse(text)
    if not isinstance(root, Object):
        raise JsoncError("expected an object", line_of(text, root.start))
    return _Reading(text, Source(path, 0, dialect, place), substitution).all(root)


def define_entry(name: str, entry: Mapping[str, Any], origin: str) -> Definition:
    """A server that somebody defines while Rookery runs, in whichever shape; text in it stands for itself.

    Whoever may ask for this must not be able to ask for the variables and files of the user with it.
    """
    literal = Substitution(None, {}, str, show_files=False)
    try:
        parsed = parse_file(json.dumps({"servers": {name: entry}}), origin, "rookery", "user", literal)
    except (JsoncError, TypeError) as error:
        raise RookeryError("invalid-input", f'the server "{name}": {error}', "give an entry of plain JSON") from None
    if name not in parsed.definitions:
        told = parsed.problems[0] if parsed.problems else Problem(origin, 0, "it has neither a command nor a url")
        raise RookeryError("invalid-input", told.message, told.remedy)
    found = parsed.definitions[name]
    return msgspec.structs.replace(found, source=msgspec.structs.replace(found.source, line=0))


def containers(text: str, root: Object, dialect: Dialect) -> Iterator[Container]:
    """Where the servers of a file stand. OpenCode has two shapes: `mcp.<name>`, and `mcp.servers.<name>` since 2."""
    name = CONTAINERS[dialect]
    found = root.get(name)
    if found is None:
        return
    outer = _object(text, name, found)
    inner = outer.get("servers") if dialect == "opencode" else None
    if inner is None or not isinstance(inner.value, Object) or not _holds_servers(inner.value):
        yield Container(outer, outer.members, Timeouts())
        return
    limit = outer.get("timeout")
    unfit = Unfit('"timeout" is to be milliseconds, or an object of them', limit.start if limit else 0)
    try:
        timeouts = timeouts_in_ms(plain(limit.value) if limit else None, Timeouts(), unfit)
    except Unfit as error:
        raise JsoncError(error.message, line_of(text, error.at)) from None
    yield Container(inner.value, inner.value.members, timeouts)
    yield Container(outer, tuple(one for one in outer.members if one.name not in ("servers", "timeout")), timeouts)


def _object(text: str, name: str, member: Member) -> Object:
    if not isinstance(member.value, Object):
        raise JsoncError(f'"{name}" is to be an object', line_of(text, member.start))
    return member.value


def _holds_servers(node: Object) -> bool:
    """Tells the map of servers from a server that happens to be called "servers"."""
    return all(isinstance(member.value, Object) for member in node.members)


class _Reading:
    def __init__(self, text: str, file: Source, substitution: Substitution) -> None:
        self._text, self._file, self._substitution = text, file, substitution
        self._line_ends = [found.start() for found in re.finditer("\n", text)]
        self._parsed = Parsed()

    def all(self, root: Object) -> Parsed:
        dialect, seen = self._file.dialect, dict[str, Member]()
        if dialect == "rookery":
            self._parsed.permissions = permissions_in(root, self._text, self._file.path, self._file.place)
        if dialect != "opencode" and root.get(CONTAINERS[dialect]) is None:
            for other in sorted(set(CONTAINERS.values()) & {member.name for member in root.members}):
                self._tell(root.start, f'"{other}" is not read in this file', f'call it "{CONTAINERS[dialect]}"')
        left = _MOST_SERVERS
        for container in containers(self._text, root, dialect):
            for member in container.members:
                if left == 0:
                    self._tell(member.start, f"servers after the first {_MOST_SERVERS} are not read", "use fewer")
                    return self._parsed
                left -= 1
                if member.name in seen:
                    first = self._line(seen[member.name].start)
                    message = f'the server "{member.name[:40]}" is defined twice in this file, first in line {first}'
                    self._tell(member.start, message, "the last one counts; take one out", member.name)
                    self._forget(member.name)
                seen[member.name] = member
                self._entry(member, container.timeouts)
        return self._parsed

    def _line(self, at: int) -> int:
        return bisect.bisect_left(self._line_ends, at) + 1

    def _entry(self, member: Member, base: Timeouts) -> None:
        name, parsed = member.name, self._parsed
        if told := wrong_with_name(name):
            self._tell(member.start, f"the name {name[:40]!r} of a server {told}", "give it another name")
            return
        source = msgspec.structs.replace(self._file, line=self._line(member.start))
        self._substitution.missing.clear()
        try:
            if not isinstance(member.value, Object):
                raise Unfit("expected an object", member.start)
            both: tuple[dict[str, Any], dict[str, Any]] = self._substitution.values(member.value)
            if switches_off(both[0]):
                parsed.off[name] = source
                return
            parsed.definitions[name], notes = define(name, member.value, both, source, base)
        except Unfit as error:
            parsed.failed.add(name)
            self._tell(error.at, f'the server "{name}": {error.message}', error.remedy, name)
            return
        for message, remedy, at in notes:
            self._tell(at, f'the server "{name}": {message}', remedy, name, note=True)
        for variable, at in self._substitution.missing.items():
            told = f'the server "{name}": the variable {variable} is not set, and empty text is used for it'
            self._tell(at, told, f"set {variable} where Rookery is started", name, note=True)

    def _forget(self, name: str) -> None:
        self._parsed.definitions.pop(name, None)
        self._parsed.off.pop(name, None)
        self._parsed.failed.discard(name)

    def _tell(self, at: int, message: str, remedy: str = "", server: str | None = None, *, note: bool = False) -> None:
        problems, path, line = self._parsed.problems, self._file.path, self._line(at)
        if len(problems) < _MOST_PROBLEMS:
            problems.append(Problem(path, line, message, remedy, server, note))
        elif len(problems) == _MOST_PROBLEMS:
            problems.append(Problem(path, line, "there are more problems from here on", "mend these first"))
