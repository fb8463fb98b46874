"""Differences between servers and mcp.lock."""

from typing import Any

import msgspec
import pytest

from rookery.guard.lock.compare import DRIFT_RULES, CurrentServer, Drift, compare_servers
from rookery.guard.lock.file import FactKey, LockedPackage, LockedServer
from rookery.guard.lock.packages import PackageRequest
from rookery.guard.pins.definition import DefinitionKey

DIGEST, OTHER = ("sha256:" + pair * 32 for pair in ("ab", "cd"))
TOOL = DefinitionKey("tool", "read")
SERVER = LockedServer(
    "x",
    "project",
    {FactKey("command"): ["npx", "x@1.0.0"]},
    [LockedPackage("npm", "x", "1.0.0", ("sha512-a",))],
    {TOOL: DIGEST},
)
EXACT = [PackageRequest("npm", "x", "1.0.0")]


def compare(now: CurrentServer | None, locked: LockedServer | None = SERVER, **more: Any) -> list[Drift]:
    return compare_servers({"x": locked} if locked else {}, {"x": now} if now else {}, **more)


def changed(**fields: Any) -> CurrentServer:
    return CurrentServer(msgspec.structs.replace(SERVER, **fields), requests=EXACT)


def test_a_server_that_is_as_locked_has_no_difference() -> None:
    assert compare(CurrentServer(SERVER, requests=EXACT)) == []


@pytest.mark.parametrize(
    ("now", "rule", "text"),
    [
        (
            changed(facts={FactKey("command"): ["npx", "x@1.0.0", "--all"]}),
            "server-changed",
            'command: ["npx", "x@1.0.0"] is locked, now ["npx", "x@1.0.0", "--all"]',
        ),
        (
            changed(facts={**SERVER.facts, FactKey("env", "NODE_OPTIONS"): "(hidden)"}),
            "server-changed",
            'env NODE_OPTIONS: - is locked, now "(hidden)"',
        ),
        (
            changed(packages=[LockedPackage("npm", "x", "1.0.1", ("sha512-b",))]),
            "package-changed",
            "npm:x: version 1.0.0 is locked, now 1.0.1",
        ),
        (
            changed(packages=[LockedPackage("npm", "x", "1.0.0", ("sha512-b",))]),
            "integrity-changed",
            "npm:x 1.0.0: sha512-a is locked, the registry tells sha512-b",
        ),
        (changed(pins={}), "definition-missing", "tool read is locked, but not listed"),
        (
            changed(pins={TOOL: DIGEST, DefinitionKey("prompt", "p"): OTHER}),
            "definition-new",
            "prompt p is listed, but not locked",
        ),
        (
            changed(pins={TOOL: OTHER}),
            "definition-changed",
            "tool read differs: sha256:abababababab is locked, now sha256:cdcdcdcdcdcd",
        ),
        (None, "server-missing", "it is locked, but not defined here"),
    ],
)
def test_each_difference_is_an_error_that_says_what_is_locked_and_what_is(
    now: CurrentServer | None, rule: str, text: str
) -> None:
    (drift,) = compare(now)
    assert (drift.rule, drift.level, drift.text) == (rule, "error", text)


def test_a_new_server_of_the_repository_is_an_error_and_one_of_the_user_is_none() -> None:
    assert [drift.rule for drift in compare(CurrentServer(SERVER), None)] == ["server-not-locked"]
    own = msgspec.structs.replace(SERVER, level="user")
    assert compare(CurrentServer(own), None) == []
    assert [(drift.rule, drift.level) for drift in compare(None, own)] == [("own-server-missing", "note")]


def test_a_server_that_was_not_started_fails_the_check() -> None:
    now = changed(facts={}, pins={})
    found = compare(msgspec.structs.replace(now, problem="it needs approval"))
    assert [drift.rule for drift in found] == ["server-changed", "not-compared"]
    assert found[1].text == "it needs approval"


def test_c11_a_package_that_cannot_be_looked_up_fails_the_check() -> None:
    now = changed(packages=[])
    found = compare(msgspec.structs.replace(now, unresolved={"npm:x": "npm failed"}))
    assert [(drift.rule, drift.level) for drift in found] == [("package-unknown", "error")]
    assert compare(now, packages=False) == []


def test_c11_a_command_without_a_version_is_a_warning() -> None:
    found = compare(CurrentServer(SERVER, requests=[PackageRequest("npm", "x", "^1.0.0")]))
    assert [(drift.rule, drift.level) for drift in found] == [("package-not-pinned", "warning")]


def test_c03_the_new_definition_is_shown_with_invisible_characters() -> None:
    raw = '{"name": "read", "description": "Read\u200b it.\u202e"}'.encode()
    (drift,) = compare(msgspec.structs.replace(changed(pins={TOOL: OTHER}), contents={TOOL: raw}))
    assert drift.content == '{"name": "read", "description": "Read\\u{200b} it.\\u{202e}"}'


def test_only_the_chosen_servers_are_compared() -> None:
    locked = {"x": SERVER, "y": msgspec.structs.replace(SERVER, name="y")}
    assert [drift.server for drift in compare_servers(locked, {}, chosen=["y"])] == ["y"]


def test_each_rule_says_what_to_do() -> None:
    assert all(rule.id == key and rule.title and rule.remedy for key, rule in DRIFT_RULES.items())
