"""Tools that together could leak private data, reported as a guess."""

import json
from typing import Any

import pytest
from msgspec import Raw

from rookery.gateway.provider import CatalogEntry
from rookery.upstreams.lint import classify_tool, find_toxic_flow


def entry(name: str, description: str = "", **annotations: Any) -> CatalogEntry:
    whole = {"name": name, "description": description, "annotations": annotations}
    return CatalogEntry(name, Raw(json.dumps(whole).encode()))


FETCH = entry("fetch_markdown", "Fetch a website and return its contents.")
READ = entry("read_file", "Read a file from disk.")
SEND = entry("sendMail", "Send an e-mail.")


@pytest.mark.parametrize(
    ("tool", "parts"),
    [
        (FETCH, {"untrusted"}),
        (READ, {"private"}),
        (SEND, {"sink"}),
        (entry("get_issue", "Get one issue."), {"untrusted"}),
        (entry("get-sum", "Returns the sum of two numbers"), set[str]()),
        (entry("post_message", readOnlyHint=True), set[str]()),
        (entry("run_query", "Run SQL in a closed world", openWorldHint=False), {"private"}),
        (entry("lookup", readOnlyHint=True, openWorldHint=True), {"untrusted"}),
        (CatalogEntry("odd", Raw(b"7")), set[str]()),
        (entry("odd", annotations=[1]), set[str]()),
    ],
)
def test_a_tool_plays_the_parts_that_its_words_and_annotations_say(tool: CatalogEntry, parts: set[str]) -> None:
    assert classify_tool(tool) == parts


def test_c25_only_a_source_private_data_and_a_sink_together_are_a_toxic_flow() -> None:
    tools = {"web__fetch": FETCH, "disk__read": READ, "mail__send": SEND}
    found = find_toxic_flow(tools.items())
    assert found is not None and (found.level, found.rule) == ("warning", "toxic-flow")
    assert all(name in found.text for name in tools) and "guess" in found.text
    for left_out in tools:
        assert find_toxic_flow((name, one) for name, one in tools.items() if name != left_out) is None
    assert find_toxic_flow([]) is None
    many = find_toxic_flow([*tools.items(), *((f"disk__read{number}", READ) for number in range(9))])
    assert many is not None and "and 7 more" in many.text
