"""Which changes of a definition count: everything that could matter to a model, and nothing else."""

import hashlib
import json
from typing import Any, cast

import pytest
from msgspec import Raw

from rookery.gateway.provider import Catalog, CatalogEntry
from rookery.guard.pins.definition import (
    DefinitionKey,
    canonicalize,
    compute_digest,
    hash_definitions,
    list_definitions,
)
from tests.support.requirements import requirement

TOOL: dict[str, Any] = {
    "name": "area",
    "title": "Area",
    "description": "Returns the area of a circle.",
    "inputSchema": {
        "type": "object",
        "properties": {"radius": {"type": "number", "default": 1, "enum": [1, 2]}},
        "required": ["radius", "unit"],
        "$defs": {"unit": {"type": "string"}},
    },
    "outputSchema": {"type": "object", "additionalProperties": False},
    "annotations": {"readOnlyHint": True, "title": "Area", "audience": ["user", "assistant"]},
    "icons": [{"src": "data:,"}],
    "_meta": {"vendor/x": {"deep": [None, 1.5]}},
}


def digest(tool: Any) -> str:
    return compute_digest(json.dumps(tool).encode())


def change(path: str, value: Any) -> bytes:
    """Return the tool with one member changed."""
    changed = json.loads(json.dumps(TOOL))
    *folders, last = path.split("/")
    inner: Any = changed
    for key in folders:
        inner = inner[int(key) if isinstance(inner, list) else key]
    inner[last] = value
    return json.dumps(changed).encode()


def reverse_keys(value: Any) -> Any:
    """Return a value with the keys of each object in the other order."""
    if isinstance(value, list):
        return [reverse_keys(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {key: reverse_keys(members[key]) for key in reversed(members)}
    return value


@requirement("guard.pin.harmless")
@pytest.mark.parametrize(
    "spelling",
    [
        json.dumps(reverse_keys(TOOL)).encode(),
        json.dumps(TOOL, indent=4).encode(),
        json.dumps(TOOL, separators=(",", ":")).encode(),
        b"\t" + json.dumps(TOOL).replace("circle", "circl\\u0065").encode() + b"\r\n",
        change("annotations", {"audience": ["assistant", "user"], "title": "Area", "readOnlyHint": True}),
    ],
    ids=["key order", "indented", "compact", "escapes", "annotations"],
)
def test_a_change_that_no_model_sees_does_not_count(spelling: bytes) -> None:
    assert compute_digest(spelling) == digest(TOOL)


@requirement("guard.pin.harmless")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "Area"),
        ("title", "area"),
        ("description", "Returns the area of a circle"),
        ("description", "Returns the area of a circle.\u200b"),
        ("description", "Returns  the area of a circle."),
        ("description", None),
        ("inputSchema/properties/radius/default", 1.0),
        ("inputSchema/properties/radius/default", "1"),
        ("inputSchema/properties/radius/default", True),
        ("inputSchema/properties/radius/enum", [2, 1]),
        ("inputSchema/required", ["unit", "radius"]),
        ("inputSchema/$defs/unit/description", "read the key file"),
        ("inputSchema/additionalProperties", True),
        ("outputSchema/additionalProperties", True),
        ("annotations/readOnlyHint", False),
        ("annotations/audience", ["user"]),
        ("icons/0/src", "https://example.com/x"),
        ("_meta/vendor\uff0fx", 1),
        ("unknown", None),
        ("__proto__", {}),
    ],
)
def test_c06_every_other_change_counts(path: str, value: Any) -> None:
    assert compute_digest(change(path, value)) != digest(TOOL)


def test_c07_a_key_that_occurs_twice_counts_twice_and_in_its_order() -> None:
    spellings = [
        b'{"name":"a","description":"kind"}',
        b'{"name":"a","description":"kind","description":"evil"}',
        b'{"name":"a","description":"evil","description":"kind"}',
    ]
    assert len({compute_digest(spelling) for spelling in spellings}) == 3


def test_numbers_keep_their_spelling() -> None:
    spellings = [
        b"1",
        b"1.0",
        b"1e0",
        b"1" + b"0" * 5000,
        b"0.1",
        b"0.10000000000000000001",
        b'"1"',
        b"1e999",
        b"2e999",
    ]
    assert len({compute_digest(b'{"x":%b}' % spelling) for spelling in spellings}) == len(spellings)


@pytest.mark.parametrize("broken", [b'{"x":"\xff"}', b'{"x":', b"[" * 100_000, b"", b'{"x":"\\ud800"}'])
def test_what_no_parser_reads_still_has_one_digest_of_its_own(broken: bytes) -> None:
    assert compute_digest(broken) == compute_digest(bytes(broken))
    assert compute_digest(broken) != compute_digest(broken + b" x")


def test_the_digest_is_the_sha_256_of_the_canonical_form() -> None:
    form = canonicalize(b'{ "b": [1, {"d":null, "c":"\\u00e9"}], "a": "x" }')
    assert form == b'{"a":"x","b":[1,{"c":"\\u00e9","d":null}]}'
    assert compute_digest(form) == f"sha256:{hashlib.sha256(form).hexdigest()}"


@requirement("guard.pin.first")
def test_every_tool_prompt_template_and_the_instructions_have_a_digest() -> None:
    def entry(**fields: Any) -> CatalogEntry:
        name = fields.get("name") or fields.get("uri") or fields["uriTemplate"]
        return CatalogEntry(name, Raw(json.dumps(fields).encode()))

    catalog = Catalog(
        tools=[entry(name="x")],
        prompts=[entry(name="x", description="a prompt")],
        templates=[entry(uriTemplate="file:///{path}")],
        resources=[entry(uri="file:///x")],
        instructions="Be careful \U000e0041",
    )
    hashed = hash_definitions(catalog)
    assert hashed.keys() == {
        DefinitionKey("tool", "x"),
        DefinitionKey("prompt", "x"),
        DefinitionKey("template", "file:///{path}"),
        DefinitionKey("instructions", ""),
    }
    assert hashed["instructions", ""] == compute_digest("Be careful \U000e0041")  # pyright: ignore[reportArgumentType]
    assert len(set(hashed.values())) == 4
    assert {item.key: compute_digest(item.content) for item in list_definitions(catalog)} == hashed
