"""Interpretation of OpenCode's result of a tool that was run by name."""

from typing import Any

import msgspec
import pytest

from rookery.agents.opencode.records import Message
from rookery.sessions.run_tool import (
    ScriptedCall,
    find_outcome,
    list_runnable,
    measure_run,
    not_offered_error,
    require_runnable,
)
from rookery.system.errors import RookeryError
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

OFFERED = ["task", "write", "bash", "question", "todowrite", "github_create_issue"]


def messages(call: str, tool: str, **state: Any) -> list[Message]:
    parts = [
        {"id": "prt_0", "type": "text", "text": "call"},
        {"id": "prt_1", "type": "tool", "tool": tool, "callID": "call_other", "state": {"status": "completed"}},
        {"id": "prt_2", "type": "tool", "tool": tool, "callID": call, "state": state},
    ]
    return msgspec.convert([{"info": {"id": "msg_1", "role": "assistant"}, "parts": parts}], list[Message])


@requirement("session.exec.input")
def test_tools_that_belong_to_a_conversation_are_neither_listed_nor_run() -> None:
    assert list_runnable(OFFERED) == ["bash", "github_create_issue", "write"]
    for name in ("task", "todowrite", "question", "invalid"):
        with pytest.raises(RookeryError, match="conversation") as caught:
            require_runnable(name)
        assert caught.value.code == "invalid-input"
    require_runnable("bash")


@requirement("session.exec.input")
def test_a_tool_that_is_not_there_is_told_from_one_that_is_not_allowed() -> None:
    unknown = not_offered_error("levitate", OFFERED, ["bash", "edit"])
    assert (unknown.code, unknown.details) == ("invalid-input", ("bash", "github_create_issue", "write"))
    assert "bash, github_create_issue, write" in unknown.message
    assert not_offered_error("edit", OFFERED, ["bash", "edit"]).code == "tool-denied"


async def test_a_call_that_opencode_could_not_make_is_no_success() -> None:
    play = ScriptedCall("bash", {"command": "ls"})
    told = messages(play.id, "invalid", status="completed", input={"tool": "bash", "error": "no JSON"}, output="no")
    run = find_outcome(told, play, "ses_1")
    assert run is not None
    assert (run.status, run.error, run.output) == ("error", "no JSON", None)
    assert (run.id, run.tool, run.input, run.session_id) == (play.id, "bash", {"command": "ls"}, "ses_1")
    assert find_outcome(told[:0], play, "ses_1") is None
    assert find_outcome(messages("call_of_somebody", "bash", status="completed"), play, "ses_1") is None


async def test_what_a_call_came_to_is_told_with_the_arguments_that_ran() -> None:
    play = ScriptedCall("read", {"filePath": "a"})
    # A plugin may have changed them.
    state = {"status": "completed", "input": {"filePath": "b"}, "output": "text", "time": {"start": 1, "end": 2}}
    run = find_outcome(messages(play.id, "read", **state), play, "ses_1")
    assert run is not None
    assert (run.status, run.input, run.output, run.start, run.end) == ("completed", {"filePath": "b"}, "text", 1, 2)
    assert run.origin == "execute_tool" and measure_run(run) == len("text") + len('{"filePath":"b"}')
