"""Problems of the tools that servers list, found without any request."""

import json
from typing import Any

import pytest
from msgspec import Raw

from rookery.gateway.names import OwnedName
from rookery.gateway.provider import CatalogEntry
from rookery.upstreams.lint import find_name_clashes, lint_tools

OBJECT: dict[str, Any] = {"type": "object"}
GOOD: dict[str, Any] = {"description": "Does it.", "inputSchema": OBJECT}


def entry(name: str = "do", **definition: Any) -> CatalogEntry:
    return CatalogEntry(name, Raw(json.dumps({"name": name, **definition}).encode()))


def rules(*tools: CatalogEntry, server: str = "s") -> list[tuple[str, str]]:
    return [(one.level, one.rule) for one in lint_tools(server, tools)]


def deep(levels: int) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": deep(levels - 1)}} if levels else {"type": "string"}


SCHEMAS: list[tuple[Any, list[tuple[str, str]]]] = [
    (OBJECT, []),
    (None, [("error", "no-schema")]),
    ([], [("error", "no-schema")]),
    ({}, [("error", "schema-type")]),
    ({"type": "string"}, [("error", "schema-type")]),
    (OBJECT | {"properties": []}, [("error", "schema-properties")]),
    (OBJECT | {"properties": {"a": {"description": "x"}}}, []),
    (OBJECT | {"properties": {"a": {"type": "string"}}}, [("note", "no-argument-description")]),
    (OBJECT | {"required": ["a"], "additionalProperties": False}, [("error", "schema-required")]),
    (OBJECT | {"required": [{}, 7], "additionalProperties": False}, [("error", "schema-required")]),
    (OBJECT | {"$defs": {"Some<x y>": {}}, "not": {"$ref": "#/$defs/Some%3Cx%20y%3E"}}, []),
    (OBJECT | {"allOf": [{"$ref": "#/allOf/" + "9" * 5000}]}, [("error", "ref-unresolvable")]),
    (OBJECT | {"$defs": {"a/b": {}}, "allOf": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#"}]}, []),
    (OBJECT | {"$defs": {"x": {"$anchor": "here"}}, "not": {"$ref": "#here"}}, []),
    (OBJECT | {"allOf": [{"$ref": "#/allOf/0"}, {"$ref": "#/allOf/7"}]}, [("error", "ref-unresolvable")]),
    (OBJECT | {"not": {"$ref": "#there"}}, [("error", "ref-unresolvable")]),
    (OBJECT | {"not": {"$ref": "http://127.0.0.1:9/x.json"}}, [("error", "ref-elsewhere")]),
    (OBJECT | {"not": {"$ref": "file:///etc/passwd"}}, [("error", "ref-elsewhere")]),
    # What only looks like a reference: an argument of this name, and data.
    (OBJECT | {"properties": {"$ref": {"description": "x"}}, "default": {"$ref": "nowhere"}}, []),
    (OBJECT | {"x": deep(100)}, [("error", "schema-too-large")]),
    (OBJECT | {"enum": [], "anyOf": [{}] * 30_000}, [("error", "schema-too-large")]),
]


@pytest.mark.parametrize(("schema", "said"), SCHEMAS)
def test_schemas_are_judged_as_clients_take_them(schema: Any, said: list[tuple[str, str]]) -> None:
    assert rules(entry(description="Does it.", inputSchema=schema)) == said


def test_output_schemas_are_looked_at_for_references_too() -> None:
    assert rules(entry(**GOOD, outputSchema={"$ref": "https://example.com/x"})) == [("error", "ref-elsewhere")]


def test_what_a_model_cannot_know_and_clients_cannot_take_is_said() -> None:
    assert rules(entry(**GOOD)) == []
    for nothing in (None, "", "  ", 7):
        assert rules(entry(description=nothing, inputSchema=OBJECT)) == [("warning", "no-description")]
    assert rules(entry("a b", **GOOD)) == [("warning", "name-characters")]
    long = next(iter(lint_tools("s", [entry("n" * 62, **GOOD)])))
    assert (long.rule, long.server, long.tool) == ("name-too-long", "s", "n" * 62) and "shown as s__nnn" in long.text
    assert rules(entry("Do", **GOOD), entry("do", **GOOD)) == [("warning", "name-clash")]
    assert rules(CatalogEntry("x", Raw(b"[1]"))) == [("error", "unreadable")]


def test_tools_with_clashing_names_are_reported_with_their_public_names() -> None:
    (found,) = find_name_clashes([OwnedName("a", "b_c"), OwnedName("a_b", "c"), OwnedName("x", "y")])
    assert (found.level, found.rule, found.server) == ("warning", "name-clash", None)
    assert "a/b_c as a_b_c" in found.text and "a_b/c as a_b_c_" in found.text
