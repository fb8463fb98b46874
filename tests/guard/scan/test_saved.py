"""Files with definitions: saved results, and JSON lines."""

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.guard.scan.saved import parse_saved, read_saved
from rookery.system.errors import RookeryError

TOOL = {"name": "area", "description": "Returns the area."}


@pytest.mark.parametrize(
    "saved",
    [
        {"tools": [TOOL]},
        {"jsonrpc": "2.0", "id": 1, "result": {"tools": [TOOL]}},
        [TOOL],
        TOOL,
        {"id": "7", "server": "saved", "tool": TOOL},
    ],
)
def test_a_saved_result_is_read_in_every_form(saved: Any) -> None:
    (definition,) = parse_saved(json.dumps(saved), "saved")
    assert (definition.kind, definition.server, definition.name, definition.value["name"]) == (
        "tool",
        "saved",
        "area",
        "area",
    )


def test_json_lines_hold_definitions_of_every_kind() -> None:
    lines = [
        {"id": "1", "server": "a", "tool": TOOL},
        {"id": "2", "server": "b", "prompt": {"name": "greet"}},
        {"id": "3", "server": "b", "resource": {"uri": "x:/1"}},
        {"id": "4", "server": "c", "instructions": "Be brief."},
        {"id": "5", "server": "c", "skill": {"name": "tidy"}},
    ]
    definitions = parse_saved("\n".join(map(json.dumps, lines)) + "\n\n", "x")
    assert [(definition.id, definition.server, definition.kind, definition.name) for definition in definitions] == [
        ("1", "a", "tool", "area"),
        ("2", "b", "prompt", "greet"),
        ("3", "b", "resource", "x:/1"),
        ("4", "c", "instructions", "instructions"),
        ("5", "c", "skill", "tidy"),
    ]


def test_an_initialize_result_holds_instructions() -> None:
    saved = {"serverInfo": {"name": "circles"}, "instructions": "Be brief."}
    (definition,) = parse_saved(json.dumps(saved), "x")
    assert (definition.kind, definition.server, definition.value) == ("instructions", "circles", "Be brief.")


@pytest.mark.parametrize("text", ["", "{}", "[]", "no json", "3", '{"tool": 3}\n{"tool": 4}', '"text"', "[" * 100_000])
def test_a_file_without_definitions_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "saved.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RookeryError) as caught:
        read_saved(file)
    assert caught.value.code == "invalid-input"
    assert "saved.json" in caught.value.message
