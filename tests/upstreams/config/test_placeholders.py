"""Placeholders: their values, what a person is shown, and what is never expanded."""

from collections.abc import Mapping
from typing import Any

import pytest

from rookery.upstreams.config.definition import Dialect
from rookery.upstreams.config.jsonc import parse_jsonc
from rookery.upstreams.config.placeholders import EntryError, Substitution
from tests.support.requirements import requirement

VARIABLES = {"A": "one", "EMPTY": "", "NESTED": "{env:A}${A}{file:f}", "A.B": "dotted"}
FILES = {"f": "  content\n", "n": "{env:A}"}


def no_file(name: str) -> str:
    raise FileNotFoundError(2, "No such file or directory")


def substituted(
    text: str, dialect: Dialect | None = "rookery", variables: Mapping[str, str] = VARIABLES, *, show_files: bool = True
) -> tuple[Any, Any, list[tuple[str, int]]]:
    def read(name: str) -> str:
        return FILES[name] if name in FILES else no_file(name)

    substitution = Substitution(dialect, variables, read, show_files)
    full, written = substitution.values(parse_jsonc(text))
    return full, written, [(error.message, error.at) for error in substitution.unresolved]


@requirement("hub.config.substitute")
@pytest.mark.parametrize(
    ("text", "full", "written"),
    [
        ('"{env:A}"', "one", "{env:A}"),
        ('"a {env:A} b {env:A}"', "a one b one", "a {env:A} b {env:A}"),
        ('"{env:A.B}"', "dotted", "{env:A.B}"),
        ('"{file:f}"', "content", "content"),
        ('"${A}"', "one", "${A}"),
        ('"${A:-two}"', "one", "${A:-two}"),
        ('"${NONE:-two}"', "two", "${NONE:-two}"),
        ('"${NONE:-}"', "", "${NONE:-}"),
        ('"${EMPTY:-two}"', "", "${EMPTY:-two}"),
        ('"$A {A} {env:} ${A"', "$A {A} {env:} ${A", "$A {A} {env:} ${A"),
        ('["{env:A}", {"{env:A}": "{env:A}"}, 5, null]', ["one", {"{env:A}": "one"}, 5, None], None),
    ],
)
def test_placeholders_in_values_are_replaced_and_stay_in_what_is_shown(text: str, full: Any, written: Any) -> None:
    found = substituted(text)
    assert found[0] == full
    assert found[1] == written or written is None


@requirement("hub.config.substitute")
def test_each_dialect_has_its_own() -> None:
    text = '"{env:A} {file:f} ${A}"'
    assert substituted(text, "opencode")[0] == "one content ${A}"
    assert substituted(text, "claude")[0] == "{env:A} {file:f} one"
    assert substituted(text, "rookery")[0] == "one content one"
    assert substituted(text, "dispatch")[0] == "{env:A} {file:f} ${A}"
    assert substituted(text, None)[0] == "{env:A} {file:f} ${A}"


@requirement("hub.config.substitute")
def test_what_was_put_in_is_not_looked_through_again() -> None:
    assert substituted('"{env:NESTED}"')[0] == VARIABLES["NESTED"]
    assert substituted('"${NONE:-{env:A}"')[0] == "{env:A"
    assert substituted('"{file:n}"') == ("{env:A}", "{env:A}", [])
    assert substituted('"{env:{env:A}}"')[0] == "}"


@requirement("hub.config.substitute")
def test_a_variable_that_is_set_but_empty_is_no_error() -> None:
    assert substituted('"{env:EMPTY}"') == ("", "{env:EMPTY}", [])


@requirement("hub.config.substitute")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('["a", "{env:NONE}"]', "the variable NONE is not set"),
        ('["a", "${NONE}"]', "the variable NONE is not set"),
        ('["a", "{file:none}"]', "{file:none} cannot be read: No such file or directory"),
        ('["a", "${BROKEN}"]', "the variable BROKEN is not valid UTF-8"),
    ],
)
def test_a_reference_without_a_value_is_named_with_its_place(text: str, reason: str) -> None:
    assert substituted(text, variables={"BROKEN": "\udcff"})[2] == [(reason, 6)]


@requirement("hub.config.substitute")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('["a", "${env:A}"]', "${env:A} is not the name of a variable"),
        ('["a", "${}"]', "${} is not the name of a variable"),
    ],
)
def test_what_cannot_be_replaced_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(EntryError) as caught:
        substituted(text)
    assert caught.value.message == told
    assert caught.value.at == 6


def test_what_a_user_keeps_in_files_is_not_shown() -> None:
    assert substituted('"{file:f}"', show_files=False) == ("content", "{file:f}", [])


def test_a_few_characters_cannot_stand_for_a_flood() -> None:
    with pytest.raises(EntryError, match="longer than 1000000 characters"):
        substituted('"' + "{env:BIG}" * 100 + '"', variables={"BIG": "x" * 100_000})
