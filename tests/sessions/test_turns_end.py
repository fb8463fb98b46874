"""When a turn is over, from the state of its session."""

from typing import Any

import msgspec
import pytest

from rookery.agents.opencode.records import MessageInfo
from rookery.sessions.turns import is_turn_over


def user(id_: str) -> dict[str, Any]:
    return {"id": id_, "role": "user"}


def answer(id_: str, parent: str, finish: str | None = "stop", *, error: bool = False) -> dict[str, Any]:
    """Without a reason to finish it is not whole."""
    time = {"created": 1, **({"completed": 2} if finish else {})}
    fault = {"error": {"name": "APIError"}} if error else {}
    return {"id": id_, "role": "assistant", "parentID": parent, "time": time, "finish": finish, **fault}


M, STEP = user("m2"), answer("m3", "m2", "tool-calls")


@pytest.mark.parametrize(
    ("messages", "running", "failed", "over"),
    [
        # OpenCode says yes before it begins.
        ([], False, False, False),
        ([M], False, False, False),
        ([M], True, False, False),
        ([M, answer("m3", "m2", None)], True, False, False),
        ([M, answer("m3", "m2")], True, False, False),
        ([M, answer("m3", "m2")], False, False, True),
        # Between two steps.
        ([M, STEP], True, False, False),
        ([M, STEP, answer("m4", "m2")], False, False, True),
        # A person forbade the tool.
        ([M, STEP], False, False, True),
        # It was aborted, and its last message is still on its way.
        ([M, answer("m3", "m2", None)], False, True, False),
        ([M, answer("m3", "m2", None, error=True)], False, True, True),
        # There was no model at all.
        ([M], True, True, False),
        ([M], False, True, True),
        ([], False, True, False),
        # What an earlier message began still runs, or was answered before.
        ([user("m0"), answer("m1", "m0", "tool-calls"), M], True, False, False),
        ([user("m0"), answer("m1", "m0"), M], False, False, False),
        # Another message came behind it.
        ([M, answer("m3", "m2"), user("m4")], True, False, True),
        ([M, answer("m3", "m2", "tool-calls"), user("m4")], True, False, False),
        ([M, user("m4"), answer("m5", "m4", None)], True, False, False),
        ([M, user("m4"), answer("m5", "m4")], False, False, True),
    ],
)
def test_a_turn_is_over_when_its_last_message_is_whole_and_nothing_runs(
    messages: list[dict[str, Any]], running: bool, failed: bool, over: bool
) -> None:
    infos = msgspec.convert(messages, list[MessageInfo])
    assert is_turn_over(infos, "m2", running=running, failed=failed) is over
