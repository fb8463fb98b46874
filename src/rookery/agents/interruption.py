"""Tells from a session's messages whether its last turn was cut off, as by a crash."""

from collections.abc import Sequence

from rookery.agents.records import Message

# As many of the newest messages are looked at: prompts that queue up stand behind what was cut off.
NEWEST = 10

CONTINUE = (
    "Your last turn was cut off before it was finished, because the program that it ran in ended. "
    "See how far it came, and go on from there."
)


def cut_off(messages: Sequence[Message], *, was_running: bool = False) -> bool:
    """Of a session that is idle now. `was_running`: its turn ran when the agent was last heard of.

    A prompt without an answer is one that was cut off only if it ran: there are messages that want no answer.
    """
    last = last_of_assistant(messages)
    if was_running and messages and messages[-1] is not last:
        return True
    if last is None or last.info.error is not None:
        return False
    if last.info.time.completed is None:
        return True
    # Between two steps: the model called tools, they ran, and it was never told. It is not told of a tool that a
    # person forbade either, but then one of them has failed.
    states = [part.state.status for part in last.parts if part.state is not None]
    return last.info.finish == "tool-calls" and bool(states) and "error" not in states


def last_of_assistant(messages: Sequence[Message]) -> Message | None:
    return next((one for one in reversed(messages) if one.info.role == "assistant"), None)
