"""Differences between definitions: by field and word, with nothing invisible."""

import json

from rookery.guard.pins.difference import FieldDifference, compare_definitions


def shown(differences: list[FieldDifference]) -> dict[str, str]:
    marks = {"same": "{}", "removed": "[-{}-]", "added": "{{+{}+}}"}
    return {field.place: "".join(marks[part.change].format(part.text) for part in field.parts) for field in differences}


def compare(old: object, new: object) -> dict[str, str]:
    return shown(compare_definitions(json.dumps(old).encode(), json.dumps(new).encode()))


def test_only_the_fields_that_differ_are_shown_word_by_word() -> None:
    old = {"name": "read", "description": "Read a note.", "inputSchema": {"enum": ["a", "b"], "required": True}}
    new = {"name": "read", "description": "Read two notes.", "inputSchema": {"enum": ["a", "c"]}, "title": "Read"}
    assert compare(old, new) == {
        "description": "Read [-a-]{+two+} [-note-]{+notes+}.",
        "inputSchema.enum[1]": "[-b-]{+c+}",
        "inputSchema.required": "[-true-]",
        "title": "{+Read+}",
    }


def test_invisible_and_bidirectional_characters_are_escapes() -> None:
    differences = compare({"a": "x"}, {"a": "x\u200b\u202e\U000e0041\x1b[2K", "\u2066": "1"})
    assert differences["a"] == "x{+\\u{200b}\\u{202e}\\u{e0041}\\e[2K+}"
    assert "\\u{2066}" in differences


def test_a_new_definition_is_shown_as_a_whole() -> None:
    assert shown(compare_definitions(None, b'{"name":"read"}')) == {"name": "{+read+}"}


def test_what_parsers_read_alike_is_shown_as_it_is_written() -> None:
    differences = shown(compare_definitions(b'{"a":2}', b'{"a":1,"a":2}'))
    assert differences == {"": '{{+"a":1,+}"a":2}'}


def test_large_texts_are_shown_as_replaced() -> None:
    old, new = "a " * 5_000, "b " * 5_000
    assert compare({"a": old}, {"a": new}) == {"a": f"[-{old}-]{{+{new}+}}"}


def test_a_definition_that_is_no_json_is_a_text() -> None:
    assert shown(compare_definitions(b"one two", b"one three")) == {"": "one [-two-]{+three+}"}
