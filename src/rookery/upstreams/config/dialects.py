"""Parse the text of a configuration file into server definitions, in the dialect of any supported program.

A broken entry is reported and left out; the other entries of the file are used. Messages never repeat a value of an
entry, which may be a secret.
"""

import bisect
import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from rookery.system.errors import RookeryError
from rookery.upstreams.config.definition import (
    ConfigLevel,
    ConfigProblem,
    Definition,
    Dialect,
    ServerSandbox,
    Source,
    Transport,
    add_digests,
    find_name_problem,
)
from rookery.upstreams.config.jsonc import JsoncError, Member, Object, find_line, parse_jsonc, to_python
from rookery.upstreams.config.overrides import EntryOverride
from rookery.upstreams.config.permissions import Permissions, read_permissions
from rookery.upstreams.config.placeholders import EntryError, Substitution
from rookery.upstreams.oauth.terms import parse_terms
from rookery.wire.client.client import Timeouts

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_URL = re.compile(r"[^\x00-\x20\x7f]+")

_TYPES: Mapping[str, tuple[str, Transport]] = {
    "local": ("local", "auto"),
    "stdio": ("local", "auto"),
    "remote": ("remote", "auto"),
    "http": ("remote", "http"),
    "streamable-http": ("remote", "http"),
    "streamableHttp": ("remote", "http"),
    "sse": ("remote", "sse"),
}
_LOCAL_KEYS = ("command", "args", "env", "environment", "cwd", "framing", "inherit", "sandbox")
_REMOTE_KEYS = ("url", "headers", "oauth")
_ENABLED_KEYS = ("enabled", "disabled")
# The names of the same setting in different programs.
_INCLUDED_TOOLS_KEYS = ("enabledTools", "enabled_tools", "includeTools")
_EXCLUDED_TOOLS_KEYS = ("disabledTools", "disabled_tools", "excludeTools")
_LIMIT_KEYS = ("timeout", "timeouts", "scope", "exclusive", "roots", "calls", "queue", "idle")
_KNOWN_KEYS = (
    "type",
    *_LOCAL_KEYS,
    *_REMOTE_KEYS,
    *_ENABLED_KEYS,
    "tools",
    *_INCLUDED_TOOLS_KEYS,
    *_EXCLUDED_TOOLS_KEYS,
    *_LIMIT_KEYS,
)
_SCOPES = ("app", "project", "workspace", "session")
# Without a command and a url, an entry with any of these changes a server of a lower source.
_OPTION_KEYS = frozenset(_KNOWN_KEYS) - {"type", "command", "args", "url"}
# The options that have the same name in an entry and a definition, and are taken as they are.
_PLAIN_OPTIONS = ("framing", "inherit", "sandbox", "scope", "exclusive", "roots", "calls", "queue")
_UNSET = -1.0
_MAX_UNKNOWN_KEYS = 10
_MAX_TIMEOUT_SECONDS = 86_400.0
_MAX_IDLE_SECONDS = 30 * 86_400.0
CONTAINER_KEYS: dict[Dialect, str] = {
    "rookery": "servers",
    "dispatch": "servers",
    "opencode": "mcp",
    "claude": "mcpServers",
}
_MAX_PROBLEMS = 50
# Far more than anybody has; reading more would take time during which nothing else runs.
_MAX_SERVERS = 200


class EntryFields:
    """The fields of one server's entry; `null` counts as absent. Messages never repeat a value, which may be secret."""

    def __init__(self, node: Object, values: Mapping[str, Any]) -> None:
        self._node = node
        self._values = {key: value for key, value in values.items() if value is not None}

    def __contains__(self, key: str) -> bool:
        return key in self._values

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._values)

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def at(self, key: str = "") -> int:
        """Return the position of a member, or of the entry if it has no such member."""
        member = self._node.get(key)
        return member.start if member else self._node.start

    def invalid_field(self, key: str, expected: str) -> EntryError:
        """Return the error for a field that is not as expected."""
        return EntryError(f'"{key}" must be {expected}', self.at(key))

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str | None) or "\0" in (value or ""):
            raise self.invalid_field(key, "text")
        return value or ""

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.get(key)
        if not isinstance(value, list | None):
            raise self.invalid_field(key, "a list of strings")
        items = cast("list[Any]", value or [])
        if not all(isinstance(item, str) and "\0" not in item for item in items):
            raise self.invalid_field(key, "a list of strings")
        return tuple(items)

    def text_map(self, key: str) -> dict[str, str]:
        value = self.get(key)
        if not isinstance(value, dict | None):
            raise self.invalid_field(key, "an object whose values are strings")
        values = cast("dict[str, Any]", value or {})
        for name, text in values.items():
            if not isinstance(text, str) or "\0" in text:
                raise self.invalid_field(
                    key, f'an object whose values are strings; put the value of "{name}" in quotes'
                )
        return values

    def boolean(self, key: str) -> bool | None:
        value = self.get(key)
        if not isinstance(value, bool | None):
            raise self.invalid_field(key, "true or false")
        return value

    def number(self, key: str, least: float, most: float, default: float) -> float:
        return check_range(
            self.get(key), least, most, default, self.invalid_field(key, f"a number from {least:g} to {most:g}")
        )

    def integer(self, key: str, least: int, most: int, default: int) -> int:
        value = self.number(key, least, most, default)
        if value != int(value):
            raise self.invalid_field(key, "a whole number")
        return int(value)

    def choice(self, key: str, choices: Iterable[str]) -> Any:
        value = self.get(key)
        if value is not None and value not in choices:
            raise self.invalid_field(key, "one of " + ", ".join(choices))
        return value

    def environment(self, key: str) -> dict[str, str]:
        variables = self.text_map(key)
        if any(not name or "=" in name or "\0" in name for name in variables):
            raise self.invalid_field(key, 'an object of variables; a name is empty or contains "="')
        return variables

    def headers(self, key: str) -> dict[str, str]:
        headers = self.text_map(key)
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise self.invalid_field(key, f"an object of HTTP headers; {name!r} contains an invalid character")
        return headers

    def url(self, key: str) -> str:
        value = self.text(key)
        try:
            parts = urlsplit(value)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            valid = False
        if not valid or not _URL.fullmatch(value):
            raise self.invalid_field(key, "an address that begins with http:// or https://")
        return value


def check_range(value: Any, least: float, most: float, default: float, error: EntryError) -> float:
    """Return a number within bounds, or the default for None. `true` is not a number here, although it is in Python."""
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise error
    return value


EntryNotes = list[tuple[str, str, int]]


def is_override(values: Mapping[str, Any]) -> bool:
    """Return whether an entry only sets options of a server, wherever it is defined."""
    keys = {key for key, value in values.items() if value is not None}
    return not keys & {"command", "args", "url"} and bool(keys & _OPTION_KEYS)


def build_override(
    node: Object, substituted: tuple[dict[str, Any], dict[str, Any]], source: Source
) -> tuple[EntryOverride, EntryNotes]:
    """Return the options that an entry sets, and notes on its unused parts. Raise EntryError if one is invalid."""
    values, written = substituted
    fields = EntryFields(node, values)
    fields.choice("type", tuple(_TYPES))
    # Checks all options, with a program in the place of the missing one.
    complete = EntryFields(node, {**values, "type": "local", "command": "-"})
    options = _read_options(complete, Timeouts(_UNSET, _UNSET, _UNSET), source.dialect)
    timeouts: Timeouts = options.pop("timeouts")
    given: dict[str, Any] = {name: options[name] for name in _PLAIN_OPTIONS if name in fields}
    if any(key in fields for key in _ENABLED_KEYS):
        given["enabled"] = options["enabled"]
    if "idle" in fields:
        given["idle_seconds"] = options["idle_seconds"]
    given |= {"cwd": fields.text("cwd")} if "cwd" in fields else {}
    given |= {"environment": environment} if (environment := _environment(fields)) else {}
    given |= {"headers": fields.headers("headers")} if "headers" in fields else {}
    given |= {"oauth": _oauth(fields)} if "oauth" in fields else {}
    limits = {name: getattr(timeouts, name) for name in ("startup", "catalog", "execution")}
    lists_tools = any(key in fields for key in _INCLUDED_TOOLS_KEYS) or isinstance(fields.get("tools"), list)
    override = EntryOverride(
        source=source,
        written={key: value for key, value in written.items() if key != "type"},
        fields=given,
        tools=options["tools"],
        is_tool_list=lists_tools,
        timeouts={name: seconds for name, seconds in limits.items() if seconds != _UNSET},
    )
    return override, _notes_on_keys(node, fields)


def build_definition(
    name: str, node: Object, substituted: tuple[dict[str, Any], dict[str, Any]], source: Source, base: Timeouts
) -> tuple[Definition, EntryNotes]:
    """Return the definition, and notes on unused parts of the entry: message, remedy and position.

    Raise EntryError if the entry is invalid.
    """
    values, written = substituted
    fields = EntryFields(node, values)
    kind, transport = _kind(fields)
    remote = kind == "remote"
    options: dict[str, Any] = {"scope": "app" if remote else "workspace"}
    options |= _read_options(fields, base, source.dialect)
    definition = Definition(
        name=name,
        kind="remote" if remote else "local",
        source=source,
        command=() if remote else _command(fields),
        cwd=None if remote else fields.text("cwd") or None,
        environment={} if remote else _environment(fields),
        url=fields.url("url") if remote else "",
        headers=fields.headers("headers") if remote else {},
        transport=transport,
        oauth=_oauth(fields) if remote else None,
        written=written,
        **options,
    )
    return add_digests(definition), _notes(node, fields, remote=remote)


def _read_options(fields: EntryFields, base: Timeouts, dialect: Dialect) -> dict[str, Any]:
    """Return the options that servers of both kinds have, by the fields of `Definition`."""
    options: dict[str, Any] = {
        "enabled": _enabled(fields),
        "timeouts": _read_timeouts(fields, base, everything=dialect == "claude"),
        "framing": fields.choice("framing", ("lines", "content-length")) or "lines",
        "inherit": fields.boolean("inherit") or False,
        "sandbox": _sandbox(fields),
        "exclusive": fields.boolean("exclusive") or False,
        "roots": fields.boolean("roots"),
        "calls": fields.integer("calls", 1, 1000, 32),
        "queue": fields.integer("queue", 0, 10_000, 128),
        "idle_seconds": fields.number("idle", 0, _MAX_IDLE_SECONDS, 600),
        "tools": _tools(fields),
    }
    scope = fields.choice("scope", _SCOPES)
    return options | ({"scope": scope} if scope is not None else {})


def _sandbox(fields: EntryFields) -> ServerSandbox | None:
    value = fields.get("sandbox")
    unfit = fields.invalid_field(
        "sandbox", '"off", "workspace", "read-only", or an object with lists of paths `read` and `write`, and `network`'
    )
    if value is None:
        return None
    if value in ("off", "workspace", "read-only"):
        return ServerSandbox(files=value)
    if not isinstance(value, dict):
        raise unfit
    given = cast("dict[str, Any]", value)
    try:
        if not given or given.keys() - {"read", "write", "network"}:
            raise unfit
        sandbox = msgspec.convert({**given, "files": "listed"}, ServerSandbox)
    except msgspec.ValidationError:
        raise unfit from None
    if any(not path or "\0" in path for path in (*sandbox.read, *sandbox.write)):
        raise unfit
    return sandbox


def _build_unresolved(
    name: str, node: Object, substituted: tuple[dict[str, Any], dict[str, Any]], source: Source
) -> Definition:
    """Return a definition that stands for an entry which cannot be parsed without the missing values."""
    values, written = substituted
    remote = "url" in values
    enabled = _enabled(EntryFields(node, values))
    return add_digests(
        Definition(name=name, kind="remote" if remote else "local", source=source, enabled=enabled, written=written)
    )


def parse_timeouts_ms(value: Any, base: Timeouts, error: EntryError, *, everything: bool = False) -> Timeouts:
    """Parse OpenCode's `timeout`: a number limits lists, with `everything` calls too; an object names each limit."""
    if isinstance(value, dict):
        return _parse_timeouts(cast("dict[str, Any]", value), base, 1000, error)
    names = ("catalog", "execution") if everything else ("catalog",)
    return _parse_timeouts({} if value is None else dict.fromkeys(names, value), base, 1000, error)


def _parse_timeouts(values: Mapping[str, Any], base: Timeouts, per_second: float, error: EntryError) -> Timeouts:
    defaults = {"startup": base.startup, "catalog": base.catalog, "execution": base.execution}
    if set(values) - set(defaults):
        raise error
    least = 0.001 * per_second
    most = _MAX_TIMEOUT_SECONDS * per_second
    return Timeouts(
        **{
            name: seconds if values.get(name) is None else check_range(values[name], least, most, 0, error) / per_second
            for name, seconds in defaults.items()
        }
    )


def _read_timeouts(fields: EntryFields, base: Timeouts, *, everything: bool) -> Timeouts:
    names = "{startup, catalog, execution}"
    unfit = fields.invalid_field(
        "timeout", f"milliseconds, more than 0 and at most a day, or an object with any of {names}"
    )
    from_milliseconds = parse_timeouts_ms(fields.get("timeout"), base, unfit, everything=everything)
    unfit = fields.invalid_field("timeouts", f"an object with seconds for any of {names}, at most a day")
    from_seconds = fields.get("timeouts")
    if not isinstance(from_seconds, dict | None):
        raise unfit
    return _parse_timeouts(cast("dict[str, Any]", from_seconds or {}), from_milliseconds, 1, unfit)


def _kind(fields: EntryFields) -> tuple[str, Transport]:
    word = fields.choice("type", tuple(_TYPES))
    if word is None and ("command" in fields) == ("url" in fields):
        mistake = "both a command and a url" if "url" in fields else "neither a command nor a url"
        raise EntryError(f"it has {mistake}", fields.at(), 'a local server has a "command", a remote one a "url"')
    kind, transport = _TYPES[word] if word else _TYPES["remote" if "url" in fields else "local"]
    wrong_key = "url" if kind == "local" else "command"
    if wrong_key in fields:
        raise EntryError(f'a {kind} server has no "{wrong_key}"', fields.at(wrong_key), "remove it, or change the type")
    return kind, transport


def _command(fields: EntryFields) -> tuple[str, ...]:
    value = fields.get("command")
    command = (fields.text("command"),) if isinstance(value, str) else fields.texts("command")
    if not command or not command[0].strip():
        raise fields.invalid_field("command", "a program, as text or as a list with its arguments")
    return (*command, *fields.texts("args"))


def _environment(fields: EntryFields) -> dict[str, str]:
    if "env" in fields and "environment" in fields:
        raise EntryError('it has both "env" and "environment"', fields.at("env"), "merge them")
    return fields.environment("env" if "env" in fields else "environment")


def _enabled_agrees(values: Any) -> bool:
    return values.get("enabled") is None or values.get("enabled") != values.get("disabled")


def _enabled(fields: EntryFields) -> bool:
    enabled = fields.boolean("enabled")
    disabled = fields.boolean("disabled")
    if not _enabled_agrees(fields):
        raise EntryError('"enabled" and "disabled" contradict each other', fields.at("disabled"), "remove one of them")
    return not disabled if enabled is None else enabled


def _tools(fields: EntryFields) -> tuple[tuple[str, bool], ...]:
    value = fields.get("tools")
    lists = [key for key in _INCLUDED_TOOLS_KEYS if key in fields]
    rules = list[tuple[str, bool]]()
    if isinstance(value, dict):
        by_wildcard = cast("dict[str, Any]", value)
        rules += by_wildcard.items()
        if not all(isinstance(offered, bool) for offered in by_wildcard.values()):
            raise fields.invalid_field("tools", "an object of wildcards with true or false, or a list of wildcards")
    elif value is not None:
        lists.append("tools")
    if lists:
        rules += [("*", False), *((wildcard, True) for key in lists for wildcard in fields.texts(key))]
    return (*rules, *((wildcard, False) for key in _EXCLUDED_TOOLS_KEYS for wildcard in fields.texts(key)))


def _oauth(fields: EntryFields) -> Any:
    value = fields.get("oauth")
    if value is not None and not isinstance(value, dict | bool):
        raise fields.invalid_field("oauth", "an object, or false")
    if isinstance(value, dict):
        try:
            parse_terms(cast("dict[str, Any]", value))
        except RookeryError as error:
            raise EntryError(error.message, fields.at("oauth"), error.remedy) from None
    return None if value is True else cast("Any", value)


def _notes(node: Object, fields: EntryFields, *, remote: bool) -> EntryNotes:
    """Return notes on keys that belong to servers of the other kind, are unknown or are repeated."""
    kind, unused_keys = ("remote", _LOCAL_KEYS) if remote else ("local", _REMOTE_KEYS)
    unused: EntryNotes = [
        (f'"{key}" is not used for a {kind} server', "", fields.at(key)) for key in unused_keys if key in fields
    ]
    return unused + _notes_on_keys(node, fields)


def _notes_on_keys(node: Object, fields: EntryFields) -> EntryNotes:
    """Return notes on keys that are unknown or repeated."""
    notes: EntryNotes = [
        (f'"{member.name[:40]}" is repeated; the last one is used', "", member.start) for member in node.repeated()
    ]
    # Limited, because the search for similar keys takes time, and a file can have any number of keys.
    for key in [key for key in fields.keys if key not in _KNOWN_KEYS][:_MAX_UNKNOWN_KEYS]:
        close = difflib.get_close_matches(key[:40], _KNOWN_KEYS, n=1, cutoff=0.7)
        remedy = f'did you mean "{close[0]}"?' if close else ""
        notes.append((f'"{key[:40]}" is not used', remedy, fields.at(key)))
    return notes


@dataclass
class ParsedFile:
    """The content of one file.

    `overrides` change servers of lower sources, `failed` are its broken entries.
    """

    definitions: dict[str, Definition] = field(default_factory=dict[str, Definition])
    overrides: dict[str, EntryOverride] = field(default_factory=dict[str, EntryOverride])
    failed: set[str] = field(default_factory=set[str])
    problems: list[ConfigProblem] = field(default_factory=list[ConfigProblem])
    permissions: Permissions = field(default_factory=Permissions)


@dataclass(frozen=True)
class ServerContainer:
    """An object whose members are servers, and the timeouts that it sets for all of them."""

    node: Object
    members: tuple[Member, ...]
    timeouts: Timeouts


def parse_file(text: str, path: str, dialect: Dialect, place: ConfigLevel, substitution: Substitution) -> ParsedFile:
    """Parse all servers of a file. Raise JsoncError if the file is broken; a broken entry is reported and left out."""
    root = parse_jsonc(text)
    if not isinstance(root, Object):
        raise JsoncError("expected an object", find_line(text, root.start))
    return _FileParser(text, Source(path, 0, dialect, place), substitution).parse(root)


def define_server(name: str, entry: Mapping[str, Any], origin: str) -> Definition:
    """Return the definition of a server that is added at run time, in any dialect. Text in it is literal.

    Placeholders are not replaced: the caller must not get access to the variables and files of the user.
    """
    literal = Substitution(None, {}, str, show_files=False)
    try:
        parsed = parse_file(json.dumps({"servers": {name: entry}}), origin, "rookery", "user", literal)
    except (JsoncError, TypeError) as error:
        raise RookeryError("invalid-input", f'the server "{name}": {error}', "use an entry of plain JSON") from None
    if name not in parsed.definitions:
        problem = (
            parsed.problems[0] if parsed.problems else ConfigProblem(origin, 0, "it has neither a command nor a url")
        )
        raise RookeryError("invalid-input", problem.message, problem.remedy)
    definition = parsed.definitions[name]
    return msgspec.structs.replace(definition, source=msgspec.structs.replace(definition.source, line=0))


def find_containers(text: str, root: Object, dialect: Dialect) -> Iterator[ServerContainer]:
    """Yield the objects that hold the servers of a file.

    OpenCode has two shapes: `mcp.<name>`, and `mcp.servers.<name>` since version 2.
    """
    name = CONTAINER_KEYS[dialect]
    member = root.get(name)
    if member is None:
        return
    outer = _require_object(text, name, member)
    inner = outer.get("servers") if dialect == "opencode" else None
    if inner is None or not isinstance(inner.value, Object) or not _holds_servers(inner.value):
        yield ServerContainer(outer, outer.members, Timeouts())
        return
    limit = outer.get("timeout")
    unfit = EntryError('"timeout" must be milliseconds, or an object of them', limit.start if limit else 0)
    try:
        timeouts = parse_timeouts_ms(to_python(limit.value) if limit else None, Timeouts(), unfit)
    except EntryError as error:
        raise JsoncError(error.message, find_line(text, error.at)) from None
    yield ServerContainer(inner.value, inner.value.members, timeouts)
    yield ServerContainer(
        outer, tuple(entry for entry in outer.members if entry.name not in ("servers", "timeout")), timeouts
    )


def _require_object(text: str, name: str, member: Member) -> Object:
    if not isinstance(member.value, Object):
        raise JsoncError(f'"{name}" must be an object', find_line(text, member.start))
    return member.value


def _holds_servers(node: Object) -> bool:
    """Return whether this is a map of servers, and not a server that is called "servers"."""
    return all(isinstance(member.value, Object) for member in node.members)


class _FileParser:
    """Parses the servers of one file."""

    def __init__(self, text: str, file: Source, substitution: Substitution) -> None:
        self._text = text
        self._file = file
        self._substitution = substitution
        self._line_ends = [match.start() for match in re.finditer("\n", text)]
        self._parsed = ParsedFile()

    def parse(self, root: Object) -> ParsedFile:
        dialect = self._file.dialect
        seen = dict[str, Member]()
        if dialect == "rookery":
            self._parsed.permissions = read_permissions(root, self._text, self._file.path, self._file.place)
        if dialect != "opencode" and root.get(CONTAINER_KEYS[dialect]) is None:
            for other in sorted(set(CONTAINER_KEYS.values()) & {member.name for member in root.members}):
                self._report(
                    root.start, f'"{other}" is not read in this file', f'rename it to "{CONTAINER_KEYS[dialect]}"'
                )
        remaining = _MAX_SERVERS
        for container in find_containers(self._text, root, dialect):
            for member in container.members:
                if remaining == 0:
                    self._report(member.start, f"servers after the first {_MAX_SERVERS} are not read", "use fewer")
                    return self._parsed
                remaining -= 1
                if member.name in seen:
                    first = self._line(seen[member.name].start)
                    message = f'the server "{member.name[:40]}" is defined twice in this file, first in line {first}'
                    self._report(member.start, message, "the last one is used; remove the other", member.name)
                    self._forget(member.name)
                seen[member.name] = member
                self._parse_entry(member, container.timeouts)
        return self._parsed

    def _line(self, at: int) -> int:
        return bisect.bisect_left(self._line_ends, at) + 1

    def _parse_entry(self, member: Member, base: Timeouts) -> None:
        name = member.name
        parsed = self._parsed
        if problem := find_name_problem(name):
            self._report(member.start, f"the name {name[:40]!r} of a server {problem}", "choose another name")
            return
        source = msgspec.structs.replace(self._file, line=self._line(member.start))
        self._substitution.unresolved.clear()
        try:
            if not isinstance(member.value, Object):
                raise EntryError("expected an object", member.start)
            both: tuple[dict[str, Any], dict[str, Any]] = self._substitution.values(member.value)
            notes = self._build(name, member.value, both, source, base)
        except EntryError as error:
            parsed.failed.add(name)
            self._report(error.at, f'the server "{name}": {error.message}', error.remedy, name)
            return
        for message, remedy, at in notes:
            self._report(at, f'the server "{name}": {message}', remedy, name, note=True)

    def _build(
        self,
        name: str,
        node: Object,
        both: tuple[dict[str, Any], dict[str, Any]],
        source: Source,
        base: Timeouts,
    ) -> EntryNotes:
        """Add the definition or the override of an entry, and return notes on its unused parts."""
        parsed = self._parsed
        unresolved = list(self._substitution.unresolved)
        first = f"{unresolved[0].message}; {unresolved[0].remedy}".removesuffix("; ") if unresolved else ""
        if is_override(both[0]):
            override, notes = build_override(node, both, source)
            parsed.overrides[name] = msgspec.structs.replace(override, unresolved=first)
        else:
            try:
                definition, notes = build_definition(name, node, both, source, base)
            except EntryError:
                if not unresolved:
                    raise
                definition = _build_unresolved(name, node, both, source)
                notes = []
            parsed.definitions[name] = msgspec.structs.replace(definition, unresolved=first)
        for error in unresolved:
            self._report(error.at, f'the server "{name}": {error.message}', error.remedy, name)
        return notes

    def _forget(self, name: str) -> None:
        self._parsed.definitions.pop(name, None)
        self._parsed.overrides.pop(name, None)
        self._parsed.failed.discard(name)

    def _report(
        self, at: int, message: str, remedy: str = "", server: str | None = None, *, note: bool = False
    ) -> None:
        problems = self._parsed.problems
        path = self._file.path
        line = self._line(at)
        if len(problems) < _MAX_PROBLEMS:
            problems.append(ConfigProblem(path, line, message, remedy, server, note))
        elif len(problems) == _MAX_PROBLEMS:
            problems.append(ConfigProblem(path, line, "more problems follow from here", "fix these first"))
