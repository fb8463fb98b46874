"""Files with definitions: saved results, and JSON lines."""

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.guard.scan.saved import parse_saved, read_saved
from rookery.guard.scan.scanner import scan_definitions
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


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\u0085"])
def test_a_string_in_a_line_may_hold_other_line_breaks(character: str) -> None:
    tool = TOOL | {"description": f"Returns{character}the area."}
    rows = [json.dumps({"id": id_, "tool": tool}, ensure_ascii=False) for id_ in ("1", "2")]
    definitions = parse_saved("\r\n".join(rows), "saved")
    assert [definition.id for definition in definitions] == ["1", "2"]
    assert definitions[0].value == tool


@pytest.mark.parametrize("bad", ["{", "3", '{"id": "2", "tool": 3}', "[" * 100_000, '{"id": ' + "9" * 5_000 + "}"])
def test_a_line_that_cannot_be_read_is_severe_and_the_others_are_read(bad: str) -> None:
    good = json.dumps({"id": "1", "tool": TOOL})
    reports = scan_definitions(parse_saved(f"{good}\n{bad}\n{good}", "saved"), off=["concealment"])
    assert [(report.id, report.severity) for report in reports] == [("1", None), ("2", "severe"), ("1", None)]
    (finding,) = reports[1].findings
    assert finding.rule == "limit"
    assert "2" in finding.excerpt


def test_bytes_that_are_not_utf_8_are_a_finding(tmp_path: Path) -> None:
    file = tmp_path / "saved.jsonl"
    file.write_bytes(b'{"name": "a", "description": "Returns caf\xe9s."}\n{"name": "b", "description": "Adds."}\n')
    reports = scan_definitions(read_saved(file))
    assert [[finding.rule for finding in report.findings] for report in reports] == [["hidden-characters"], []]
    assert "caf" not in reports[0].findings[0].excerpt
    assert reports[0].findings[0].excerpt == "\\udce9"
