"""Searching tools in plain words."""

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.gateway.search.index import IndexedTool, ToolIndex
from rookery.gateway.search.words import split_words, stem
from tests.support.requirements import requirement


def listed(server: str, name: str, description: str = "", **arguments: str) -> IndexedTool:
    about = {key: {"type": "string", "description": said} for key, said in arguments.items()}
    definition = {"name": name, "description": description, "inputSchema": {"type": "object", "properties": about}}
    return IndexedTool(f"{server}__{name}", server, name, json.dumps(definition).encode())


SHELF = [
    listed("github", "create_issue", "Create a new issue in a GitHub repository", title="its first line"),
    listed("github", "list_issues", "List issues in a GitHub repository"),
    listed("github", "merge_pull_request", "Merge a pull request"),
    listed("files", "create_directory", "Create a new directory"),
    listed("files", "readTextFile", "Read the complete contents of a file as text", path="where it lies"),
    listed("mongodb", "count", "Gets the number of documents in a collection", filter="a query"),
    listed("chart", "generate_pie_chart", "Generate a pie chart to show the proportion of parts"),
    listed("a", "nameless"),
]


@requirement("hub.find.tool")
@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("create issue", "github__create_issue"),
        ("Issues of my repos", "github__list_issues"),
        ("merge the PR", "github__merge_pull_request"),
        ("make a folder", "files__create_directory"),
        ("read text", "files__readTextFile"),
        ("how many are there in mongo", "mongodb__count"),
        ("draw the proportions", "chart__generate_pie_chart"),
        ("NAMELESS", "a__nameless"),
    ],
)
def test_a_tool_is_found_by_its_words_or_by_others_for_the_same(question: str, first: str) -> None:
    assert ToolIndex(SHELF).find(question, 5)[0] == first


@requirement("hub.find.tool")
def test_nine_of_ten_plain_questions_find_their_tool_in_the_first_five_results() -> None:
    folder = Path(__file__).parents[3] / "bench" / "search"
    shelves = json.loads((folder / "tools.json").read_text(encoding="utf-8"))
    questions = json.loads((folder / "queries.json").read_text(encoding="utf-8"))
    tools = [(server, one) for server, shelf in shelves.items() for one in shelf["tools"]]
    assert len(shelves) >= 10 and len(questions) == 100
    listed = [
        IndexedTool(f"{server}/{one['name']}", server, one["name"], json.dumps(one).encode()) for server, one in tools
    ]
    index = ToolIndex(listed)
    missed = [question for question, wanted in questions.items() if not {*index.find(question, 5)} & {*wanted}]
    assert len(missed) <= 10, missed


def test_no_more_are_found_than_asked_for_and_none_that_has_nothing_to_do_with_it() -> None:
    index = ToolIndex(SHELF)
    assert len(index.find("create a new thing in github", 2)) == 2
    assert index.find("zebra", 5) == index.find("the of and", 5) == index.find("!?", 5) == index.find("", 5) == []
    assert ToolIndex([]).find("anything", 5) == []
    assert index.find("issue", 5) == ToolIndex(SHELF[::-1]).find("issue", 5)


ODD: list[dict[str, Any]] = [
    {},
    {"description": 7, "title": ["x"], "inputSchema": []},
    {"description": "x" * 1_000_000, "inputSchema": {"properties": [1]}},
    {"inputSchema": {"properties": {"a": 3, "b": {"description": {}}}}},
    {"inputSchema": {"properties": {f"argument{n}": {} for n in range(10_000)}}},
]


@pytest.mark.parametrize("definition", ODD)
def test_a_definition_that_says_nonsense_is_found_by_its_name(definition: dict[str, Any]) -> None:
    odd = IndexedTool("s__odd", "s", "odd", json.dumps(definition).encode())
    assert ToolIndex([*SHELF, odd]).find("odd", 5) == ["s__odd"]


@pytest.mark.parametrize("schema", [b'{"properties":{"a":{"maximum":1e999}}}', b'{"a":' * 5000 + b"1" + b"}" * 5000])
def test_a_definition_that_cannot_be_read_keeps_nobody_from_finding_anything(schema: bytes) -> None:
    odd = IndexedTool("s__odd", "s", "odd", b'{"name":"odd","inputSchema":%b}' % schema)
    assert ToolIndex([*SHELF, odd]).find("odd", 5) == ["s__odd"]
    assert ToolIndex([*SHELF, odd]).find("issue", 1) == ToolIndex(SHELF).find("issue", 1)


def test_names_are_taken_apart_and_endings_cut_off() -> None:
    apart = list(split_words("readTextFile get_HTTPRequest list-issues"))
    assert apart == list(split_words("read text file get http request list issue"))
    assert stem("files") == stem("file") and stem("queries") == stem("query") and stem("stopped") == stem("stop")
    assert stem("bus") == "bus" and stem("class") == "class" and stem("ping") == "ping"
    assert list(split_words("größe 42 日本")) == ["größe", "42", "日本"]
