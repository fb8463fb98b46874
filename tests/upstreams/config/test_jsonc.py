"""JSON with comments: the same values as plain JSON, and every error with its line."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rookery.upstreams.config.jsonc import Array, JsoncError, Node, Object, find_line, parse_jsonc, to_python
from tests.support.jsonc import GAPS, VALUES, dressed
from tests.support.requirements import requirement


@given(VALUES, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_json_gives_what_the_standard_library_reads_in_it(value: Any, indent: int | str | None, ascii_: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_)
    assert to_python(parse_jsonc(text)) == json.loads(text)


@requirement("hub.config.substitute")
@given(VALUES, st.data())
@settings(max_examples=200)
def test_comments_and_trailing_commas_change_nothing(value: Any, data: st.DataObject) -> None:
    def gap() -> str:
        return data.draw(GAPS)

    text = gap() + dressed(value, gap) + gap()
    assert to_python(parse_jsonc(text)) == value
    assert to_python(parse_jsonc("\ufeff" + text)) == value


@given(st.text('{}[],:"\\/* \n1-ea', max_size=30))
@settings(max_examples=500)
def test_all_that_json_accepts_is_accepted_and_errors_name_a_line(text: str) -> None:
    try:
        wanted = json.loads(text)
    except ValueError:
        wanted = None
    try:
        assert to_python(parse_jsonc(text)) == wanted or wanted is None
    except JsoncError as error:
        assert wanted is None
        assert 1 <= error.line <= text.count("\n") + 1


def places(node: Node) -> list[tuple[int, int, Any]]:
    inner = [m.value for m in node.members] if isinstance(node, Object) else []
    inner = list(node.items) if isinstance(node, Array) else inner
    return [(node.start, node.end, to_python(node)), *(one for child in inner for one in places(child))]


@given(VALUES)
def test_every_value_stands_where_it_says(value: Any) -> None:
    text = json.dumps(value, indent=1)
    for start, end, found in places(parse_jsonc(text)):
        assert json.loads(text[start:end]) == found


def test_a_name_and_its_comma_stand_where_they_say() -> None:
    text = '{\n  "a": 1, // one\n  "b": 2\n}'
    root = parse_jsonc(text)
    assert isinstance(root, Object)
    first, second = root.members
    assert (find_line(text, first.start), find_line(text, second.start)) == (2, 3)
    assert first.comma is not None
    assert text[first.comma] == ","
    assert second.comma is None


def test_of_members_with_one_name_the_last_counts_and_the_others_are_told() -> None:
    root = parse_jsonc('{"a": 1, "b": 2, "a": 3}')
    assert isinstance(root, Object)
    assert to_python(root) == {"a": 3, "b": 2}
    last = root.get("a")
    assert last is not None
    assert to_python(last.value) == 3
    assert [(member.name, member.start) for member in root.repeated()] == [("a", 1)]


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("", 1, "expected a value, found the end"),
        ('{\n"a": 1\n"b": 2}', 3, 'expected "," or "}"'),
        ('{\n"a" 1}', 2, 'expected ":" after the name "a"'),
        ("{\n'a': 1}", 2, "expected a name in double quotes"),
        ("[1,\n,2]", 2, "expected a value, found ','"),
        ('{"a": [\n1,\n', 3, '"[" in line 1 is never closed'),
        ("1 /* a\n", 1, "a comment does not end"),
        ('\n"a\nb"', 2, "does not end in its line"),
        ('\n"\\q"', 2, "invalid escape"),
        ('"\\ud800"', 1, "invalid escape"),
        ("[NaN]", 1, "expected a value, found 'NaN'"),
        ("[1e999]", 1, "expected a value"),
        ("[01]", 1, "expected a value"),
        ("9" * 5000, 1, "expected a value"),
        ("{}\nx", 2, "more text after the end"),
        ("[" * 5000, 1, "nested deeper than 100"),
        ("[" + "1," * 20_000 + "]", 1, "more than 10000 values"),
        (" " * 1_000_001, 1, "longer than 1000000 characters"),
    ],
    ids=lambda value: re.sub(r"\W", "", str(value))[:12],
)
def test_a_fault_is_told_with_its_line(text: str, line: int, told: str) -> None:
    with pytest.raises(JsoncError, match=re.escape(told)) as caught:
        parse_jsonc(text)
    assert caught.value.line == line
