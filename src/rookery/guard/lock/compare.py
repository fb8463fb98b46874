"""Compare servers as they are now with `mcp.lock`, and report what has drifted."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from rookery.guard.lock.file import FactKey, LockedPackage, LockedServer, LockedServers
from rookery.guard.lock.packages import PackageRequest
from rookery.guard.pins.definition import DefinitionKey
from rookery.system.text import escape_invisible

DriftLevel = Literal["error", "warning", "note"]

_MAX_SHOWN = 4_000
_ABSENT = "-"


class DriftRule(msgspec.Struct, frozen=True):
    """One way in which servers and file can differ. An error means that the check fails."""

    id: str
    level: DriftLevel
    title: str
    remedy: str


_ACCEPT = "If this is meant, review it, and write the file again: rookery guard lock"
DRIFT_RULES: Mapping[str, DriftRule] = {
    rule.id: rule
    for rule in (
        DriftRule("server-changed", "error", "the definition of a server has changed", _ACCEPT),
        DriftRule("server-not-locked", "error", "a server of the repository is not in mcp.lock", _ACCEPT),
        DriftRule("server-missing", "error", "a locked server of the repository is no longer defined", _ACCEPT),
        DriftRule(
            "own-server-missing",
            "note",
            "a locked server of somebody's own files is not defined on this machine",
            "Nothing has to be done.",
        ),
        DriftRule(
            "not-compared",
            "error",
            "a locked server could not be started, so it was not compared",
            "See what is wrong: rookery mcp check",
        ),
        DriftRule(
            "server-disabled",
            "note",
            "a locked server is switched off here, and was not started",
            "Nothing has to be done.",
        ),
        DriftRule("definition-changed", "error", "a definition that a server lists has changed", _ACCEPT),
        DriftRule("definition-new", "error", "a server lists a definition that is not locked", _ACCEPT),
        DriftRule("definition-missing", "error", "a server no longer lists a locked definition", _ACCEPT),
        DriftRule("package-changed", "error", "the registry tells another version of a package", _ACCEPT),
        DriftRule(
            "integrity-changed",
            "error",
            "the registry tells other hashes for the same version of a package",
            "Do not start the server before you know why: the same version has other content.",
        ),
        DriftRule(
            "package-unknown",
            "error",
            "a locked package could not be looked up",
            "Check the network and the configuration of the client, or leave packages out: --offline",
        ),
        DriftRule(
            "package-not-pinned",
            "warning",
            "a command runs whatever version of a package is newest",
            "Name one version in the command.",
        ),
    )
}


class Drift(msgspec.Struct, frozen=True):
    """One difference. `locked` and `current` are what is compared, as text; empty if there is none.

    `content` is the definition as the server lists it now, with invisible characters as escapes.
    """

    rule: str
    level: DriftLevel
    server: str
    subject: str
    text: str
    locked: str = ""
    current: str = ""
    content: str = ""


class CurrentServer(msgspec.Struct, frozen=True):
    """A server as it is now. `problem` says why it was not started; then only its definition is compared.

    One that is `disabled` was not started because the user does not want it. If it is not `listed`, what it lists is
    not known, and not compared.

    `contents` are the definitions that it lists, for people. `unresolved` are the packages that could not be looked up,
    each with the reason.
    """

    locked: LockedServer
    problem: str = ""
    disabled: bool = False
    listed: bool = True
    contents: Mapping[DefinitionKey, bytes] = {}
    requests: Sequence[PackageRequest] = ()
    unresolved: Mapping[str, str] = {}


def compare_servers(
    locked: LockedServers, current: Mapping[str, CurrentServer], *, chosen: Iterable[str] = (), packages: bool = True
) -> list[Drift]:
    """Return all differences, those of each server together.

    `chosen` limits the comparison to these servers. Without `packages` these are not compared.
    """
    names = list(dict.fromkeys(chosen)) or sorted(locked.keys() | current.keys())
    drifts: list[Drift] = []
    for name in names:
        drifts += _compare_server(locked.get(name), current.get(name), packages)
    return drifts


def _compare_server(locked: LockedServer | None, current: CurrentServer | None, packages: bool) -> Iterator[Drift]:
    if current is None:
        if locked is not None:
            rule = "server-missing" if locked.level == "project" else "own-server-missing"
            yield _drift(rule, locked.name, "server", "it is locked, but not defined here")
        return
    now = current.locked
    if locked is None:
        # The user's own servers are in the file only if they were put there by name.
        if now.level == "project":
            yield _drift("server-not-locked", now.name, "server", "the repository defines it, but it is not locked")
        return
    yield from _compare_facts(locked, now)
    if current.disabled:
        yield _drift("server-disabled", now.name, "server", "it is switched off, so it was not compared")
        return
    if packages:
        yield from _compare_packages(locked, current)
    if current.problem:
        yield _drift("not-compared", now.name, "server", current.problem)
        return
    if current.listed:
        yield from _compare_pins(locked, current)


def has_same_definition(locked: LockedServer, current: LockedServer) -> bool:
    """Return whether the file is about this server: what is locked of another definition says nothing about it."""
    return dict(locked.facts) == dict(current.facts)


def _compare_facts(locked: LockedServer, current: LockedServer) -> Iterator[Drift]:
    for key in [*locked.facts, *(key for key in current.facts if key not in locked.facts)]:
        old, new = (_show_fact(server.facts, key) for server in (locked, current))
        if old != new:
            subject = " ".join(filter(None, key))
            text = f"{subject}: {old} is locked, now {new}"
            if key.kind == "values":
                text = "a hidden value of its variables, headers or arguments has changed"
            yield _drift("server-changed", current.name, subject, text, old, new)


def _show_fact(facts: Mapping[FactKey, Any], key: FactKey) -> str:
    return json.dumps(facts[key], sort_keys=True) if key in facts else _ABSENT


def _compare_packages(locked: LockedServer, current: CurrentServer) -> Iterator[Drift]:
    name = current.locked.name
    old = {package.key: package for package in locked.packages}
    new = {package.key: package for package in current.locked.packages}
    for request in current.requests:
        if not request.is_exact:
            yield _drift("package-not-pinned", name, request.name, f"{request.text} names no version")
    for key, reason in sorted(current.unresolved.items()):
        yield _drift("package-unknown", name, key, reason)
    for key in sorted(old.keys() | new.keys()):
        if key in current.unresolved:
            continue
        was = old.get(key)
        now = new.get(key)
        yield from _compare_package(name, key, was, now)


def _compare_package(
    server: str, key: str, locked: LockedPackage | None, current: LockedPackage | None
) -> Iterator[Drift]:
    old, new = (package.version if package is not None else _ABSENT for package in (locked, current))
    if old != new:
        yield _drift("package-changed", server, key, f"{key}: version {old} is locked, now {new}", old, new)
    elif locked is not None and current is not None and locked.integrity != current.integrity:
        hashes = [", ".join(package.integrity) or "no hash" for package in (locked, current)]
        text = f"{key} {old}: {hashes[0]} is locked, the registry tells {hashes[1]}"
        yield _drift("integrity-changed", server, key, text, *hashes)


def _compare_pins(locked: LockedServer, current: CurrentServer) -> Iterator[Drift]:
    name = current.locked.name
    pins = current.locked.pins
    for key in sorted(locked.pins.keys() | pins.keys()):
        old = locked.pins.get(key)
        new = pins.get(key)
        subject = " ".join(filter(None, key))
        if old == new:
            continue
        content = _show_content(current.contents.get(key, b""))
        if new is None:
            yield _drift("definition-missing", name, subject, f"{subject} is locked, but not listed", old or "")
        elif old is None:
            yield _drift("definition-new", name, subject, f"{subject} is listed, but not locked", "", new, content)
        else:
            text = f"{subject} differs: {old[:19]} is locked, now {new[:19]}"
            yield _drift("definition-changed", name, subject, text, old, new, content)


def _show_content(content: bytes) -> str:
    """Return a definition on one line, without the escapes of JSON but with those of invisible characters."""
    text = content.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), ensure_ascii=False)
    text = escape_invisible(text)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text) - _MAX_SHOWN} more characters)"


def _drift(
    rule: str, server: str, subject: str, text: str, locked: str = "", current: str = "", content: str = ""
) -> Drift:
    return Drift(rule, DRIFT_RULES[rule].level, server, subject, escape_invisible(text), locked, current, content)
