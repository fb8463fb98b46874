"""One entry of a file as a definition: every shape that the dialects have, and the keys that are ours in each."""

import difflib
from collections.abc import Mapping
from typing import Any, cast

from rookery.system.errors import RookeryError
from rookery.upstreams.definition import Definition, Source, Transport, sealed
from rookery.upstreams.fields import Fields, within
from rookery.upstreams.jsonc import Object
from rookery.upstreams.signin.terms import read_terms
from rookery.upstreams.substitute import Unfit
from rookery.wire.client import Timeouts

_TYPES: Mapping[str, tuple[str, Transport]] = {
    "local": ("local", "auto"),
    "stdio": ("local", "auto"),
    "remote": ("remote", "auto"),
    "http": ("remote", "http"),
    "streamable-http": ("remote", "http"),
    "streamableHttp": ("remote", "http"),
    "sse": ("remote", "sse"),
}
_OF_LOCAL = ("command", "args", "env", "environment", "cwd", "framing", "inherit")
_OF_REMOTE = ("url", "headers", "oauth")
_SWITCHES = ("enabled", "disabled")
# The same wish under the names that different programs have for it.
_OFFERED = ("enabledTools", "enabled_tools", "includeTools")
_WITHHELD = ("disabledTools", "disabled_tools", "excludeTools")
_LIMITS = ("timeout", "timeouts", "scope", "exclusive", "calls", "queue", "idle")
_KNOWN = ("type", *_OF_LOCAL, *_OF_REMOTE, *_SWITCHES, "tools", *_OFFERED, *_WITHHELD, *_LIMITS)
_SCOPES = ("app", "project", "workspace", "session")
_MOST_UNKNOWN = 10
_LONGEST_TIMEOUT = 86_400.0
_LONGEST_IDLE = 30 * 86_400.0

Notes = list[tuple[str, str, int]]


def switches_off(values: Mapping[str, Any]) -> bool:
    """Whether an entry says no more than that the server, wherever it is defined, is not to run here."""
    off = values.get("enabled") is False or values.get("disabled") is True
    return off and not set(values) - {"type", *_SWITCHES} and _enabled_agrees(values)


def define(
    name: str, node: Object, both: tuple[dict[str, Any], dict[str, Any]], source: Source, base: Timeouts
) -> tuple[Definition, Notes]:
    """The definition, and what in the entry is not used: message, remedy and place. Unfit if it makes no sense."""
    values, written = both
    fields = Fields(node, values)
    kind, transport = _kind(fields)
    remote = kind == "remote"
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
        enabled=_enabled(fields),
        timeouts=_timeouts(fields, base, everything=source.dialect == "claude"),
        framing=fields.choice("framing", ("lines", "content-length")) or "lines",
        inherit=fields.flag("inherit") or False,
        scope=fields.choice("scope", _SCOPES) or ("app" if remote else "workspace"),
        exclusive=fields.flag("exclusive") or False,
        calls=fields.whole("calls", 1, 1000, 32),
        queue=fields.whole("queue", 0, 10_000, 128),
        idle_seconds=fields.number("idle", 0, _LONGEST_IDLE, 600),
        tools=_tools(fields),
        oauth=_oauth(fields) if remote else None,
        written=written,
    )
    return sealed(definition), _notes(node, fields, remote=remote)


def timeouts_in_ms(value: Any, base: Timeouts, unfit: Unfit, *, everything: bool = False) -> Timeouts:
    """OpenCode's `timeout`: a number bounds the listing, and with `everything` calls too; an object names each."""
    if isinstance(value, dict):
        return _each(cast("dict[str, Any]", value), base, 1000, unfit)
    names = ("catalog", "execution") if everything else ("catalog",)
    return _each({} if value is None else dict.fromkeys(names, value), base, 1000, unfit)


def _each(given: Mapping[str, Any], base: Timeouts, per_second: float, unfit: Unfit) -> Timeouts:
    known = {"startup": base.startup, "catalog": base.catalog, "execution": base.execution}
    if set(given) - set(known):
        raise unfit
    least, most = 0.001 * per_second, _LONGEST_TIMEOUT * per_second
    return Timeouts(
        **{
            name: seconds if given.get(name) is None else within(given[name], least, most, 0, unfit) / per_second
            for name, seconds in known.items()
        }
    )


def _timeouts(fields: Fields, base: Timeouts, *, everything: bool) -> Timeouts:
    each = "{startup, catalog, execution}"
    unfit = fields.unfit("timeout", f"milliseconds, more than none and at most a day, or of each of {each}")
    theirs = timeouts_in_ms(fields.get("timeout"), base, unfit, everything=everything)
    unfit = fields.unfit("timeouts", f"an object with seconds for any of {each}, at most a day")
    ours = fields.get("timeouts")
    if not isinstance(ours, dict | None):
        raise unfit
    return _each(cast("dict[str, Any]", ours or {}), theirs, 1, unfit)


def _kind(fields: Fields) -> tuple[str, Transport]:
    word = fields.choice("type", tuple(_TYPES))
    if word is None and ("command" in fields) == ("url" in fields):
        many = "both a command and a url" if "url" in fields else "neither a command nor a url"
        raise Unfit(f"it has {many}", fields.at(), 'a local server has a "command", a remote one a "url"')
    kind, transport = _TYPES[word] if word else _TYPES["remote" if "url" in fields else "local"]
    foreign = "url" if kind == "local" else "command"
    if foreign in fields:
        raise Unfit(f'a {kind} server has no "{foreign}"', fields.at(foreign), "take it out, or change the type")
    return kind, transport


def _command(fields: Fields) -> tuple[str, ...]:
    given = fields.get("command")
    command = (fields.text("command"),) if isinstance(given, str) else fields.texts("command")
    if not command or not command[0].strip():
        raise fields.unfit("command", "a program, as text or as a list with its arguments")
    return (*command, *fields.texts("args"))


def _environment(fields: Fields) -> dict[str, str]:
    if "env" in fields and "environment" in fields:
        raise Unfit('it has both "env" and "environment"', fields.at("env"), "put them together")
    return fields.environment("env" if "env" in fields else "environment")


def _enabled_agrees(values: Any) -> bool:
    return values.get("enabled") is None or values.get("enabled") != values.get("disabled")


def _enabled(fields: Fields) -> bool:
    enabled, disabled = fields.flag("enabled"), fields.flag("disabled")
    if not _enabled_agrees(fields):
        raise Unfit('"enabled" and "disabled" contradict each other', fields.at("disabled"), "take one of them out")
    return not disabled if enabled is None else enabled


def _tools(fields: Fields) -> tuple[tuple[str, bool], ...]:
    given, lists, rules = fields.get("tools"), [key for key in _OFFERED if key in fields], list[tuple[str, bool]]()
    if isinstance(given, dict):
        named = cast("dict[str, Any]", given)
        rules += named.items()
        if not all(isinstance(shown, bool) for shown in named.values()):
            raise fields.unfit("tools", "an object of wildcards with true or false, or a list of wildcards")
    elif given is not None:
        lists.append("tools")
    if lists:
        rules += [("*", False), *((wildcard, True) for key in lists for wildcard in fields.texts(key))]
    return (*rules, *((wildcard, False) for key in _WITHHELD for wildcard in fields.texts(key)))


def _oauth(fields: Fields) -> Any:
    given = fields.get("oauth")
    if given is not None and not isinstance(given, dict | bool):
        raise fields.unfit("oauth", "an object, or false")
    if isinstance(given, dict):
        try:
            read_terms(cast("dict[str, Any]", given))
        except RookeryError as error:
            raise Unfit(error.message, fields.at("oauth"), error.remedy) from None
    return None if given is True else cast("Any", given)


def _notes(node: Object, fields: Fields, *, remote: bool) -> Notes:
    """Keys that nobody knows, that belong to servers of the other kind, or that stand twice."""
    kind, foreign = ("remote", _OF_LOCAL) if remote else ("local", _OF_REMOTE)
    notes: Notes = [(f'"{one.name[:40]}" stands twice; the last one counts', "", one.start) for one in node.repeated()]
    notes += [(f'"{key}" is not used for a {kind} server', "", fields.at(key)) for key in foreign if key in fields]
    # To look for what was meant takes time, and a file could ask for it without end.
    for key in [key for key in fields.keys if key not in _KNOWN][:_MOST_UNKNOWN]:
        close = difflib.get_close_matches(key[:40], _KNOWN, n=1, cutoff=0.7)
        remedy = f'did you mean "{close[0]}"?' if close else ""
        notes.append((f'"{key[:40]}" is not used', remedy, fields.at(key)))
    return notes
