"""Definitions of servers that clients could not read."""

import asyncio
import json
import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from mcp import Client
from mcp_types import _v2025_11_25 as handshake, _v2026_07_28 as modern
from msgspec import Raw

from rookery.cli.mcp.group import render_servers
from rookery.gateway.entries import read_entries
from rookery.gateway.provider import Kind
from tests.conformance.suite import NODE
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.mcp.client import LIMIT, PROGRAMS
from tests.support.mcp.scripted_server import ServerScript, tool
from tests.support.npm.mcp_servers import installed
from tests.support.requirements import requirement

Json = dict[str, Any]

TOOL: Json = {"name": "t", "inputSchema": {"type": "object"}}
PROMPT: Json = {"name": "p"}
RESOURCE: Json = {"uri": "a:b", "name": "r"}
TEMPLATE: Json = {"uriTemplate": "a:{b}", "name": "m"}
DEEP: Any = json.loads('{"a":' * 160 + "1" + "}" * 160)

# A definition, and what becomes of it.
REPAIRED: list[tuple[Kind, Json, Json]] = [
    ("tools", TOOL | {"title": None}, TOOL),
    ("tools", TOOL | {"annotations": None, "icons": None, "_meta": None, "execution": None}, TOOL),
    ("tools", TOOL | {"annotations": {"readOnlyHint": "yes", "title": "T"}}, TOOL | {"annotations": {"title": "T"}}),
    ("tools", TOOL | {"description": 5, "x": [None]}, TOOL | {"x": [None]}),
    ("tools", TOOL | {"outputSchema": None}, TOOL),
    ("tools", TOOL | {"icons": [{"src": "a:b", "sizes": "48x48"}]}, TOOL),
    ("tools", TOOL | {"execution": {"taskSupport": True}}, TOOL),
    ("tools", {"name": "t"}, TOOL),
    ("tools", TOOL | {"inputSchema": None}, TOOL),
    ("tools", TOOL | {"inputSchema": {}}, TOOL),
    (
        "tools",
        TOOL | {"inputSchema": {"type": ["object", "null"], "x": 1}},
        TOOL | {"inputSchema": {"type": "object", "x": 1}},
    ),
    ("tools", TOOL | {"inputSchema": {"type": "object", "properties": [], "required": None}}, TOOL),
    (
        "tools",
        TOOL | {"inputSchema": {"properties": {"a": True, "b": False}, "required": False}},
        TOOL | {"inputSchema": {"type": "object", "properties": {"a": {}, "b": {"not": {}}}}},
    ),
    ("prompts", PROMPT | {"arguments": None}, PROMPT | {"arguments": []}),
    ("prompts", PROMPT | {"arguments": {}}, PROMPT | {"arguments": []}),
    (
        "prompts",
        PROMPT | {"arguments": [{"name": "a", "description": None, "required": "true", "x": None}]},
        PROMPT | {"arguments": [{"name": "a", "required": True, "x": None}]},
    ),
    ("resources", {"uri": "a:b"}, {"uri": "a:b", "name": "a:b"}),
    ("resources", RESOURCE | {"name": None, "mimeType": None, "size": "7"}, {"uri": "a:b", "name": "a:b"}),
    (
        "resources",
        RESOURCE | {"annotations": {"priority": 5, "lastModified": "yesterday", "audience": ["user"]}},
        RESOURCE | {"annotations": {"audience": ["user"]}},
    ),
    ("templates", {"uriTemplate": "a:{b}"}, {"uriTemplate": "a:{b}", "name": "a:{b}"}),
    ("templates", TEMPLATE | {"description": None, "annotations": []}, TEMPLATE),
]
LEFT_OUT: list[tuple[Kind, Any]] = [
    ("tools", 7),
    ("tools", {"inputSchema": {"type": "object"}}),
    ("tools", TOOL | {"name": ""}),
    ("tools", TOOL | {"inputSchema": {"type": "string"}}),
    ("tools", TOOL | {"inputSchema": {"type": "object", "properties": {"a": 7}}}),
    ("tools", TOOL | {"inputSchema": {"type": "object", "required": "a"}}),
    ("tools", TOOL | {"_meta": DEEP}),
    ("prompts", {"name": None}),
    ("prompts", PROMPT | {"arguments": [{"description": "which one?"}]}),
    ("prompts", PROMPT | {"arguments": "a"}),
    ("resources", {"name": "r"}),
    ("resources", RESOURCE | {"uri": "no-scheme"}),
    ("templates", {"name": "m"}),
]


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


@pytest.mark.parametrize(("kind", "definition", "expected"), REPAIRED)
def test_a_definition_is_repaired_where_its_meaning_is_plain(kind: Kind, definition: Json, expected: Json) -> None:
    (entry,), problems = read_entries(kind, [raw(definition)])
    assert msgspec.json.decode(entry.raw) == expected
    assert problems and all(f"{kind[:-1]} {entry.name!r} is repaired: `" in problem for problem in problems)


@pytest.mark.parametrize(("kind", "definition"), LEFT_OUT)
def test_a_definition_that_could_mean_anything_is_left_out_and_named(kind: Kind, definition: Any) -> None:
    entries, problems = read_entries(kind, [raw(definition)])
    assert entries == [] and "left out" in problems[-1]


def test_a_well_formed_definition_is_kept_byte_for_byte() -> None:
    whole = (
        b'{ "inputSchema" : {"type":"object","properties":{"a":{"type":["string","null"],"default":1.50}},'
        b'"additionalProperties":false,"required":["a"],"x":null} ,"name":"t","n":12345678901234567890,'
        b'"title":"\\u0041","annotations":{"title":"T","readOnlyHint":false,"y":null},'
        b'"icons":[{"src":"a:b","z":0}],"_meta":{"k":null}}'
    )
    (entry,), problems = read_entries("tools", [Raw(whole)])
    assert bytes(entry.raw) == whole and entry.handshake_raw is None and problems == []


def test_an_output_schema_that_is_no_object_is_left_out_for_handshake_clients_only() -> None:
    definition = raw(TOOL | {"outputSchema": {"type": "array"}})
    (entry,), problems = read_entries("tools", [definition])
    assert bytes(entry.raw) == bytes(definition) and problems == []
    assert entry.handshake_raw is not None and msgspec.json.decode(entry.handshake_raw) == TOOL


def test_brackets_in_texts_count_for_no_depth() -> None:
    for text in ("[" * 500, '\\"[' * 200, "}{" * 300):
        (entry,), problems = read_entries("tools", [raw(TOOL | {"description": text})])
        assert problems == [] and entry.name == "t"


ANYTHING: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "a", "a:b", "object", "user"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "required", "name", "title", "src", "a"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
MEMBERS = (
    *("title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta", "execution"),
    *("arguments", "mimeType", "size", "name", "uri", "uriTemplate"),
)
STRICT: Mapping[Kind, tuple[Json, Any, Any]] = {
    "tools": (TOOL, handshake.Tool, modern.Tool),
    "prompts": (PROMPT, handshake.Prompt, modern.Prompt),
    "resources": (RESOURCE, handshake.Resource, modern.Resource),
    "templates": (TEMPLATE, handshake.ResourceTemplate, modern.ResourceTemplate),
}


@given(st.sampled_from(sorted(STRICT)), st.dictionaries(st.sampled_from(MEMBERS), ANYTHING, max_size=4))
def test_whatever_a_server_lists_what_is_served_passes_the_types_of_the_sdk(kind: Kind, members: Json) -> None:
    definition, old, new = STRICT[kind]
    entries, problems = read_entries(kind, [raw(definition | members)])
    assert entries or problems
    for entry in entries:
        new.model_validate_json(bytes(entry.raw))
        old.model_validate_json(bytes(entry.handshake_raw or entry.raw))
        again, found = read_entries(kind, [entry.raw])
        assert found == [] and bytes(again[0].raw) == bytes(entry.raw)


# ---- through the gateway


def numbered(kind: Kind, definitions: list[Any]) -> list[Any]:
    """Return definitions with a name of its own each."""
    key = {"resources": "uri", "templates": "uriTemplate"}.get(kind, "name")
    return [
        one | {key: f"{one[key]}{number}"}
        if isinstance(one, dict) and isinstance(one.get(key), str) and one[key]
        else one
        for number, one in enumerate(definitions)
    ]


def malformed() -> ServerScript:
    listed: dict[Kind, list[Any]] = {
        "tools": [TOOL],
        "prompts": [PROMPT],
        "resources": [RESOURCE],
        "templates": [TEMPLATE],
    }
    for kind, definition, *_ in [*REPAIRED, *LEFT_OUT]:
        listed[kind].append(definition)
    for kind, definitions in listed.items():
        listed[kind] = numbered(kind, definitions)
        random.Random(1).shuffle(listed[kind])
    return ServerScript(**listed)


async def list_with_python(gateway: Gateway, mode: str) -> dict[str, list[str]]:
    async with Client(gateway.url("/mcp"), mode=mode, read_timeout_seconds=LIMIT) as client:
        return {
            "tools": [one.name for one in (await client.list_tools()).tools],
            "prompts": [one.name for one in (await client.list_prompts()).prompts],
            "resources": [str(one.uri) for one in (await client.list_resources()).resources],
            "templates": [one.uri_template for one in (await client.list_resource_templates()).resource_templates],
        }


async def list_with_typescript(gateway: Gateway) -> dict[str, list[str]]:
    sdk = installed("everything").parents[0] / "sdk"
    command = [NODE / "bin" / "node", PROGRAMS / "list_all.mjs", sdk, gateway.url("/mcp")]
    process = await asyncio.create_subprocess_exec(*map(str, command), stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(output)


@pytest.mark.anyio
@requirement("servers.list.malformed")
async def test_strict_clients_read_the_lists_of_a_server_with_every_mistake() -> None:
    async with start_gateway(
        lambda scripted: {"bad": scripted.server("bad", malformed()), "good": scripted.server("good")}
    ) as gateway:
        with_python = await list_with_python(gateway, "legacy")
        assert "good__echo" in with_python["tools"] and "bad__t0" in with_python["tools"]
        for kind in ("tools", "prompts", "resources", "templates"):
            repaired = [one for one in REPAIRED if one[0] == kind]
            named = [name for name in with_python[kind] if name.startswith("bad")]
            assert len(named) == len(repaired) + 1, kind
        assert await list_with_python(gateway, "auto") == with_python
        assert await list_with_typescript(gateway) == with_python

        # Both kinds of mistakes are named where the user looks.
        _, records = await gateway.rest("GET", "/api/mcp")
        problems = records["bad"]["problems"]
        assert records["good"]["problems"] == []
        for kind, definition, *_ in [*REPAIRED, *LEFT_OUT]:
            what = "is repaired" if (kind, definition) not in LEFT_OUT else "left out"
            assert any(what in problem for problem in problems), definition
        assert len([problem for problem in problems if "left out" in problem]) == len(LEFT_OUT)
        shown = render_servers([records["bad"]], None, with_shadows=False)
        assert problems[0].split(":")[0] in " ".join(shown.split()) and f"and {len(problems) - 3} more" in shown
        _, report = await gateway.rest("POST", "/api/check", {"servers": ["bad"]})
        assert {one["text"] for one in report["findings"] if one["rule"] == "listing"} >= set(problems)


@pytest.mark.anyio
async def test_a_mistake_that_a_server_corrects_is_no_longer_named() -> None:
    play = ServerScript([tool("a", title=None)])
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}) as gateway:
        caller = await gateway.old_caller()
        await caller.listen()
        await caller.tools()
        await caller.hears("notifications/tools/list_changed")
        server = await gateway.server("one")
        assert server.list_problems() == ["tool 'a' is repaired: `title` is invalid, and is removed"]
        await gateway.scripted.of("one")[0].change(tool("a"))
        await caller.hears("notifications/tools/list_changed", 2)
        assert server.list_problems() == []
