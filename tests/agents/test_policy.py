"""The reaction to an agent that ends, hangs or is idle, as sequences of events with times."""

import pytest

from rookery.agents.policy import HangDetector, IdleTimer, RestartDecision, RestartPolicy
from tests.support.requirements import requirement

# A story: what happens at a moment, and what is made of it.
LISTENS, ENDS = "listens", "ends"


def played(*happens: tuple[float, str]) -> list[RestartDecision]:
    restarts = RestartPolicy()
    found: list[RestartDecision] = []
    for now, what in happens:
        if what == LISTENS:
            restarts.on_listening(now)
        else:
            found.append(restarts.on_failure(now))
    return found


@requirement("agent.restart.policy")
def test_pauses_grow_while_the_agent_never_starts_and_the_fifth_end_marks_it_failed() -> None:
    story = played(*((now, ENDS) for now in range(12)))
    assert [one.seconds for one in story] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert [one.state for one in story] == ["restarting"] * 4 + ["failed"] * 8


@requirement("agent.restart.policy")
def test_an_end_after_a_good_life_is_the_first_of_its_kind() -> None:
    story = played((0, ENDS), (1, LISTENS), (10, ENDS), (12, LISTENS), (72, ENDS), (74, LISTENS), (75, ENDS))
    assert story == [
        RestartDecision(1, "restarting"),
        RestartDecision(2, "restarting"),
        RestartDecision(1, "restarting"),
        RestartDecision(2, "restarting"),
    ]


def test_a_start_that_fails_is_no_part_of_the_good_life_before_it() -> None:
    assert [one.seconds for one in played((0, LISTENS), (100, ENDS), (200, ENDS), (300, ENDS))] == [1, 2, 4]


def test_pauses_can_begin_smaller_and_have_the_same_end() -> None:
    restarts = RestartPolicy(0.01)
    assert [restarts.on_failure(0).seconds for _ in range(3)] == [0.01, 0.02, 0.04]
    assert [restarts.on_failure(0).seconds for _ in range(100)][-1] == 300


@requirement("agent.restart.policy")
@pytest.mark.parametrize(
    ("answers", "hangs"), [("xxx", True), ("xx", False), ("xxoxx", False), ("oooxxx", True), ("xoxoxoxx", False)]
)
def test_an_agent_hangs_when_it_leaves_three_checks_in_a_row_unanswered(answers: str, hangs: bool) -> None:
    checks = HangDetector()
    verdicts = [checks.record_check(answer == "o") for answer in answers]
    assert verdicts[-1] is hangs
    assert not any(verdicts[:-1])


@requirement("agent.sleep.wake")
def test_it_may_sleep_when_it_has_idled_for_so_long_since_it_was_used_or_busy() -> None:
    rest = IdleTimer(60, now=0)
    assert rest.seconds_left(0, busy=False) == 60
    rest.mark_used(30)
    assert rest.seconds_left(50, busy=False) == 40
    assert rest.seconds_left(80, busy=True) == 60
    assert rest.seconds_left(139, busy=False) == 1
    assert rest.seconds_left(140, busy=False) == 0
    assert rest.seconds_left(1000, busy=False) == 0


@requirement("agent.sleep.wake")
def test_it_does_not_sleep_while_somebody_needs_it() -> None:
    rest = IdleTimer(60, now=0)
    rest.enter()
    rest.enter()
    assert rest.seconds_left(100, busy=False) == 60
    rest.leave(110)
    assert rest.seconds_left(200, busy=False) == 60
    rest.leave(210)
    assert rest.seconds_left(269, busy=False) == 1
    assert rest.seconds_left(270, busy=False) == 0


def test_with_no_seconds_it_never_sleeps() -> None:
    assert IdleTimer(0, now=0).seconds_left(1e9, busy=False) is None
