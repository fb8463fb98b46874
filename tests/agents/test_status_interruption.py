"""Whether a turn was interrupted, from the messages that OpenCode stored."""

import pytest

from rookery.agents.opencode.records import Message, MessageInfo, MessageTimes, Part, ToolState, TurnError
from rookery.agents.status import is_cut_off
from tests.support.requirements import requirement

USER = Message(MessageInfo("m0", "user"))


def assistant(
    *states: str, completed: float | None = 2, finish: str | None = "stop", error: TurnError | None = None
) -> Message:
    tools = [Part(type="tool", tool="bash", state=ToolState(state)) for state in states]
    info = MessageInfo("m1", "assistant", time=MessageTimes(1, completed), finish=finish, error=error)
    return Message(info, (Part(type="step-start"), *tools))


HALF = assistant(completed=None, finish=None)
ABORTED = TurnError("MessageAbortedError")


@requirement("agent.crash.interrupted")
@pytest.mark.parametrize(
    "messages",
    [
        [USER, HALF],
        [USER, assistant("running", completed=None, finish=None)],
        [USER, assistant("completed", finish="tool-calls"), HALF],
        # A prompt waits behind it.
        [USER, HALF, USER],
        # Between two steps.
        [USER, assistant("completed", "completed", finish="tool-calls")],
    ],
)
def test_a_turn_that_is_not_whole_was_cut_off(messages: list[Message]) -> None:
    assert is_cut_off(messages)
    assert is_cut_off(messages, was_running=True)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER, assistant()],
        [USER, assistant(finish="length")],
        # Somebody ended it.
        [USER, assistant(error=ABORTED)],
        [USER, assistant("running", completed=None, finish=None, error=ABORTED)],
        # Somebody forbade the tool, which ends the turn too.
        [USER, assistant("error", finish="tool-calls")],
        # It was cut off once, and then taken up again.
        [USER, HALF, USER, assistant()],
        [USER, assistant(finish="tool-calls")],
    ],
)
def test_a_turn_that_came_to_its_end_was_not_cut_off(messages: list[Message]) -> None:
    assert not is_cut_off(messages)
    assert not is_cut_off(messages, was_running=True)


@requirement("agent.crash.interrupted")
@pytest.mark.parametrize("messages", [[USER], [USER, assistant(), USER]])
def test_a_prompt_without_an_answer_was_cut_off_if_it_ran(messages: list[Message]) -> None:
    assert is_cut_off(messages, was_running=True)
    assert not is_cut_off(messages), "it may be a message that wants no answer"
