"""The result of a tool, for programs and in the formats of model APIs."""

import base64
import json
from typing import Any

import pytest

from rookery.sdk.hub import Tool
from rookery.sdk.results import Result, parse_result
from tests.support.requirements import requirement

PNG = base64.b64encode(b"\x89PNG").decode()


def result(*content: Any, **more: Any) -> Result:
    return parse_result(json.dumps({"content": content, **more}).encode())


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


@requirement("hub.python.text")
def test_texts_are_one_string_and_what_is_structured_is_kept_whatever_it_is() -> None:
    assert result(text("one"), text("two")).text == "one\ntwo"
    for structured in ({"a": [1, 2]}, [1, 2], 7, "words", None):
        assert result(structuredContent=structured).structured == structured
    odd = result(text("good"), {"type": "text", "text": 7}, "no block", {"type": "new", "x": 1}, {"no": "type"})
    assert odd.text == "good" and len(odd.raw["content"]) == 5
    assert str(result()) == "" and not result().is_error


@requirement("hub.python.text")
def test_a_failure_has_the_words_of_the_tool_or_the_code_of_ours() -> None:
    failed = result(text("no such file"), isError=True).failure("read")
    assert (failed.code, failed.message) == ("tool-failed", "read: no such file")
    error = {"code": "invalid-input", "message": "bad", "remedy": "better"}
    ours = result(text("bad"), isError=True, structuredContent={"error": error}).failure("read")
    assert (ours.code, ours.message, ours.remedy) == ("invalid-input", "bad", "better")
    for odd in ({"error": "text"}, {"error": {"code": 1}}, [1], None):
        assert result(isError=True, structuredContent=odd).failure("read").code == "tool-failed"


@requirement("hub.python.attachments")
@pytest.mark.parametrize(
    ("block", "media", "content", "uri"),
    [
        ({"type": "image", "data": PNG, "mimeType": "image/png"}, "image/png", b"\x89PNG", None),
        ({"type": "audio", "data": PNG, "mimeType": "audio/wav"}, "audio/wav", b"\x89PNG", None),
        ({"type": "image", "data": PNG}, "application/octet-stream", b"\x89PNG", None),
        ({"type": "resource", "resource": {"uri": "a://1", "text": "hé"}}, "text/plain", "hé".encode(), "a://1"),
        (
            {"type": "resource", "resource": {"uri": "a://2", "mimeType": "application/pdf", "blob": PNG}},
            *("application/pdf", b"\x89PNG", "a://2"),
        ),
    ],
)
def test_images_sounds_and_resources_are_attached(block: Any, media: str, content: bytes, uri: str | None) -> None:
    (found,) = result(text("see"), block).attachments
    assert (found.media_type, found.content, found.uri) == (media, content, uri)
    assert base64.b64decode(found.data) == content


@requirement("hub.python.contract", "hub.python.attachments")
def test_results_and_tools_have_the_form_that_the_apis_of_models_take() -> None:
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    note = {"type": "resource", "resource": {"uri": "a://1", "text": "note"}}
    both = result(text("see"), image, note, {"type": "audio", "data": PNG, "mimeType": "audio/wav"})
    assert both.for_openai("c1") == {"role": "tool", "tool_call_id": "c1", "content": "see\nnote"}
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    assert both.for_anthropic("c1") == {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [text("see\nnote"), {"type": "image", "source": source}],
        "is_error": False,
    }
    # An empty text is refused there, and so is an image of a kind that it does not know.
    svg = {"type": "image", "data": PNG, "mimeType": "image/svg+xml"}
    assert result(svg, isError=True).for_anthropic("c") == {
        "type": "tool_result",
        "tool_use_id": "c",
        "content": [],
        "is_error": True,
    }
    assert result(structuredContent={"n": 1}).for_openai("c")["content"] == '{"n":1}'

    made: Any = None
    bare = Tool("s__t", "x" * 2000, {}, made)
    assert bare.for_openai()["function"]["parameters"] == {"type": "object", "properties": {}}
    assert bare.for_anthropic() == {
        "name": "s__t",
        "description": "x" * 2000,
        "input_schema": {"type": "object", "properties": {}},
    }
    assert len(bare.for_openai()["function"]["description"]) == 1024 and not bare.concurrency_safe
