"""Replies in OpenAI's protocol."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from rookery.testing.player import Reply
from rookery.testing.routes import DONE, FramedReply, error_body
from rookery.testing.script import Call, Step, Usage
from tests.support.agents.completions import asked, user


def framed(text: str, *calls: Call, **step: Any) -> FramedReply:
    made = Step(say=text, **step)
    return FramedReply(Reply(text, calls, made), asked([user("Go")]), 7)


def events(given: FramedReply) -> list[dict[str, Any]]:
    *rest, last = list(given.stream())
    assert last == DONE
    assert all(event.startswith(b"data: ") and event.endswith(b"\n\n") for event in rest)
    return [json.loads(event[6:]) for event in rest]


@given(st.text(), st.lists(st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53) | st.none())))
def test_the_pieces_of_a_stream_are_the_whole(text: str, arguments: list[dict[str, Any]]) -> None:
    made = framed(text, *(Call(f"t{n}", given) for n, given in enumerate(arguments)))
    *pieces, last = events(made)
    deltas = [event["choices"][0]["delta"] for event in pieces]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content", "") for delta in deltas) == text
    found: dict[int, str] = {}
    for delta in deltas:
        for part in delta.get("tool_calls", ()):
            found[part["index"]] = found.get(part["index"], "") + part["function"]["arguments"]
    assert [json.loads(joined) for joined in found.values()] == arguments
    assert last["choices"][0]["finish_reason"] == ("tool_calls" if arguments else "stop")
    message = json.loads(made.body())["choices"][0]["message"]
    assert (message["content"] or "") == text
    assert [json.loads(call["function"]["arguments"]) for call in message.get("tool_calls", ())] == arguments


def test_a_call_begins_with_its_name_and_an_id_that_follows_from_the_request() -> None:
    first, second, *_ = [
        part
        for event in events(framed("", Call("bash", {"command": "ls"}), Call("read")))
        for part in event["choices"][0]["delta"].get("tool_calls", ())
        if "id" in part
    ]
    assert first == {"index": 0, "id": "call_1_1", "type": "function", "function": {"name": "bash", "arguments": ""}}
    assert (second["index"], second["id"], second["function"]["name"]) == (1, "call_1_2", "read")


def test_every_piece_names_model_and_completion() -> None:
    found = events(framed("Hello"))
    assert {(one["id"], one["object"], one["created"], one["model"]) for one in found} == {
        ("chatcmpl-1", "chat.completion.chunk", 7, "scripted")
    }


def test_usage_is_estimated_or_as_the_script_has_it() -> None:
    estimated = events(framed("Hello there"))[-1]["usage"]
    assert estimated["prompt_tokens"] > 10
    assert estimated["completion_tokens"] == 3
    assert estimated["total_tokens"] == estimated["prompt_tokens"] + 3
    told = events(framed("Hello", usage=Usage(190_000, 5)))[-1]["usage"]
    assert told == {"prompt_tokens": 190_000, "completion_tokens": 5, "total_tokens": 190_005}


def test_a_stream_that_is_cut_off_has_no_end() -> None:
    pieces = list(framed("Half of", disconnect=True).stream())
    assert len(pieces) == 3
    assert DONE not in pieces
    assert b'"finish_reason":"stop"' not in b"".join(pieces)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (503, "server_error"),
    ],
)
def test_an_error_is_of_the_kind_that_its_status_says(status: int, kind: str) -> None:
    assert json.loads(error_body(status, "No."))["error"] == {
        "message": "No.",
        "type": kind,
        "param": None,
        "code": None,
    }
