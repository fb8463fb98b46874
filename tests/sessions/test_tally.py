"""Messages are counted once each, and the last turn's failure is known until there is another."""

from typing import Any

from rookery.agents.events import TurnFailed
from rookery.agents.message_events import MessageGone, MessageSeen
from rookery.agents.records import Fault, MessageInfo
from rookery.sessions.tally import Tally

BROKE = Fault("APIError", {"message": "it broke"})
ABORTED = Fault("MessageAbortedError", {"message": "Aborted"})


def seen(id_: str, role: str, **more: Any) -> MessageSeen:
    return MessageSeen("s", MessageInfo(id_, role, **more))


def test_each_message_counts_once_however_often_it_is_heard_of() -> None:
    tally = Tally.of([MessageInfo("m1", "user"), MessageInfo("m2", "assistant")], 7)
    assert (tally.count, tally.error, tally.updated) == (2, None, 7)
    for _ in range(3):
        tally.hear(seen("m3", "user"))
    tally.hear(seen("m2", "assistant"))
    assert tally.count == 3
    tally.hear(MessageGone("s", "m3"))
    assert tally.count == 2


def test_a_failure_is_known_until_a_person_says_more() -> None:
    tally = Tally.of([MessageInfo("m1", "user"), MessageInfo("m2", "assistant", error=BROKE)], 0)
    assert tally.error == "it broke"
    tally.hear(seen("m3", "user"))
    assert (tally.error, tally.failed) == (None, False)
    # Where there is no model there is no message either.
    tally.hear(TurnFailed("s", BROKE))
    assert (tally.error, tally.failed) == ("it broke", True)
    tally.hear(seen("m4", "user"))
    tally.hear(seen("m5", "assistant"))
    tally.hear(TurnFailed("s", ABORTED))
    tally.hear(seen("m5", "assistant", error=ABORTED))
    assert (tally.error, tally.failed) == (None, True)
