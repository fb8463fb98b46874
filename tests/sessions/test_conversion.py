"""Conversion of OpenCode's record of a tool run."""

import json
from typing import Any

import msgspec
import pytest

from rookery.agents.opencode.records import Part, Permission, Question, TurnError
from rookery.sessions.conversion import (
    convert_ask,
    convert_tool_run,
    describe_error,
    describe_failure,
    summarize_message,
)
from rookery.sessions.records import SessionMessage, ToolRun


def run(tool: str = "bash", **state: Any) -> ToolRun:
    part = {"id": "prt_1", "type": "tool", "tool": tool, "messageID": "msg_1", "callID": "call_1", "state": state}
    return convert_tool_run(msgspec.json.decode(json.dumps(part), type=Part), "ses_1")


def metadata(output: str = "", **more: Any) -> dict[str, Any]:
    return {"output": output, "metadata": {"output": output, **more}}


def test_a_run_is_told_with_its_input_output_and_times() -> None:
    found = run(
        status="completed",
        input={"command": "echo ran"},
        title="echo ran",
        time={"start": 1, "end": 2},
        **metadata("ran\n", exit=0),
    )
    assert found.as_dict() == {
        "id": "prt_1",
        "sessionId": "ses_1",
        "tool": "bash",
        "input": {"command": "echo ran"},
        "output": "ran\n",
        "status": "completed",
        "start": 1.0,
        "end": 2.0,
        "error": None,
        "origin": None,
        "title": "echo ran",
        "exitCode": 0,
        "messageId": "msg_1",
        "offset": None,
    }


def test_a_command_that_failed_has_run_to_its_end() -> None:
    found = run(status="completed", **metadata("(no output)", exit=3))
    assert (found.status, found.exit_code, found.error) == ("completed", 3, None)


@pytest.mark.parametrize(
    ("why", "status"),
    [
        ("User aborted the command", "aborted"),
        ("shell tool terminated command after exceeding timeout 300 ms.", "error"),
    ],
)
def test_a_command_that_was_ended_is_no_success(why: str, status: str) -> None:
    output = f"half\n\n<shell_metadata>\n{why}\n</shell_metadata>"
    found = run(status="completed", **metadata(output, exit=None))
    assert (found.status, found.error, found.output) == (status, why, output)


def test_a_command_that_was_ended_without_a_word_is_no_success() -> None:
    found = run(status="completed", **metadata("half", exit=None))
    assert (found.status, found.error) == ("error", "it was stopped before it finished")


def test_a_call_that_could_not_be_made_is_no_success_of_a_tool_called_invalid() -> None:
    found = run("invalid", status="completed", input={"tool": "frob", "error": "no such tool"}, output="The arguments")
    assert (found.tool, found.status, found.error, found.output) == ("frob", "error", "no such tool", None)
    odd = run("invalid", status="completed", input=["?"], output="said")
    assert (odd.tool, odd.status, odd.error) == ("invalid", "error", "said")


def test_a_tool_that_was_cut_off_is_no_plain_error() -> None:
    assert run("read", status="error", error="Tool execution aborted").status == "aborted"
    assert run("read", status="error", error="no such file").status == "error"


def test_metadata_can_be_anything() -> None:
    odds: list[Any] = [[], "x", None, {"exit": "one", "output": 7}]
    for odd in odds:
        found = run("theirs", status="completed", output="fine", metadata=odd)
        assert (found.status, found.output, found.exit_code) == ("completed", "fine", None)
    assert run("theirs", status="odd").status == "pending"


def test_an_error_is_told_without_the_stack_behind_it() -> None:
    fault = TurnError("UnknownError", {"message": "Model not found: a/b.\n    at <anonymous> (/x.js:1:2)\n    at y"})
    assert describe_error(fault) == "Model not found: a/b."
    assert describe_failure(fault) == "Model not found: a/b."
    assert describe_error(TurnError("Odd")) == "Odd"
    assert describe_failure(TurnError("MessageAbortedError", {"message": "Aborted"})) is None
    assert describe_failure(None) is None


def test_an_ask_is_told_with_the_words_to_answer_it() -> None:
    permission = Permission("per_1", "ses_child", "bash", ("echo x",), {"command": "echo x"}, ("echo *",), None)
    shown = convert_ask(permission, "ses_root", "app-1", "one").as_dict()
    assert (shown["sessionId"], shown["askedBy"], shown["kind"]) == ("ses_root", "ses_child", "permission")
    assert shown["options"] == (("once", "always", "reject"),)
    assert shown["detail"]["metadata"] == {"command": "echo x"}
    asked = {"id": "que_1", "sessionID": "s", "questions": [{"question": "Which?", "options": [{"label": "A"}]}]}
    question = convert_ask(msgspec.convert(asked, Question), "s", "app-1", "one")
    assert (question.kind, question.text, question.options) == ("question", "Which?", (("A",),))


def test_a_message_in_short_is_one_line() -> None:
    shown = SessionMessage(id="m", role="assistant", content="one\ntwo", time=0)
    assert summarize_message(shown) == "assistant: one two"
    assert summarize_message(msgspec.structs.replace(shown, error="it broke")) == "assistant: it broke"
    busy = ToolRun(id="r", session_id="s", tool="bash", status="running", title="sleep")
    assert summarize_message(msgspec.structs.replace(shown, parts=(busy,))) == "runs bash sleep"
    ran = msgspec.structs.replace(busy, status="completed")
    assert summarize_message(msgspec.structs.replace(shown, parts=(ran,))) == "assistant: one two"
    assert summarize_message(msgspec.structs.replace(shown, content="", parts=(ran,))) == "ran bash sleep"
    assert summarize_message(msgspec.structs.replace(shown, content="x" * 999)) == "assistant: …" + "x" * 200
