"""Boulder enforces if and only if all gates are open, at any time."""

import math

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from rookery.plugins.boulder import state as transitions
from rookery.plugins.boulder.policy import (
    BoulderLimits,
    Enforce,
    HeldBack,
    LookFirst,
    SessionFacts,
    WaitUntil,
    WorkLeft,
    decide,
    list_gates,
    session_status,
)
from rookery.plugins.boulder.state import BoulderState
from tests.support.requirements import requirement

LIMITS = BoulderLimits()
LEFT, DONE, UNKNOWN = (
    WorkLeft(True, "3 todos are open"),
    WorkLeft(False, "no todo is open"),
    WorkLeft(None, "no such file"),
)
NOW = 10_000.0
OPEN = SessionFacts(on=True, idle_since=NOW - 30)
QUIET = BoulderState()

moments = st.floats(0, 20_000)
facts = st.builds(
    SessionFacts,
    on=st.booleans(),
    touched=st.booleans(),
    running=st.booleans(),
    idle_since=moments,
    tool=st.none() | st.just("bash"),
    asks=st.integers(0, 2),
    aborted_at=st.none() | moments,
    enforcing=st.booleans(),
    work=st.sampled_from([None, LEFT, DONE, UNKNOWN]),
)
kept = st.builds(
    BoulderState,
    iteration=st.integers(0, 7),
    judged=st.integers(0, 7),
    last_activity=moments,
    attempted=st.none() | moments,
    failures=st.integers(0, 7),
    enforced=st.booleans(),
    paused=st.booleans(),
    stop_requested=st.booleans(),
    complete=st.none() | st.just("all is done"),
    budget=st.none() | st.integers(0, 7),
)


def named(of: BoulderState, how: SessionFacts, now: float = NOW) -> list[str]:
    return [one.gate for one in list_gates(of, now, how, LIMITS)]


@requirement("boulder.gates.hold")
@given(kept, moments, facts)
def test_it_enforces_only_where_nothing_at_all_speaks_against_it(
    of: BoulderState, now: float, how: SessionFacts
) -> None:
    """The same rules written down once more, in the other direction."""
    free = (
        how.on
        and how.touched
        and not (of.paused or of.stop_requested or of.enforced or how.running or how.asks)
        and how.tool is None
        and now >= how.idle_since + 30
        and (how.aborted_at is None or now >= how.aborted_at + 3)
        and (of.attempted is None or now >= of.attempted + 30 * 2**of.failures)
        and of.failures < 5
        and of.iteration < (5 if of.budget is None else of.budget)
        and of.complete is None
    )
    decision = decide(of, now, how, LIMITS)
    assert isinstance(decision, Enforce) == (free and how.work == LEFT)
    assert isinstance(decision, LookFirst) == (free and how.work is None)


@requirement("boulder.gates.hold")
@given(kept, moments, facts)
def test_a_wait_ends_at_the_moment_that_it_names_and_not_before(
    of: BoulderState, now: float, how: SessionFacts
) -> None:
    decision = decide(of, now, how, LIMITS)
    if not isinstance(decision, WaitUntil):
        return
    assert now < decision.until < math.inf
    assert isinstance(decide(of, (now + decision.until) / 2, how, LIMITS), WaitUntil)
    assert isinstance(decide(of, decision.until, how, LIMITS), Enforce if how.work == LEFT else LookFirst)


@requirement("boulder.gates.hold")
@given(kept, moments, moments, facts)
def test_what_is_held_is_held_however_much_time_goes_by(
    of: BoulderState, now: float, later: float, how: SessionFacts
) -> None:
    decision = decide(of, now, how, LIMITS)
    if isinstance(decision, HeldBack):
        assert isinstance(decide(of, now + later, how, LIMITS), HeldBack)
        assert all(one.reason for one in decision.gates)


@requirement("boulder.gates.hold")
@pytest.mark.parametrize(
    ("of", "how", "gate"),
    [
        (QUIET, {"on": False}, "off"),
        (QUIET, {"touched": False}, "untouched"),
        (transitions.pause(QUIET), {}, "paused"),
        (transitions.stop(QUIET), {}, "stopped"),
        (BoulderState(enforced=True), {}, "enforced"),
        (QUIET, {"running": True}, "busy"),
        (QUIET, {"idle_since": NOW - 29.9}, "idle"),
        (QUIET, {"tool": "bash"}, "tool"),
        (QUIET, {"asks": 1}, "asks"),
        (QUIET, {"aborted_at": NOW - 2.9}, "aborted"),
        (BoulderState(attempted=NOW - 29.9), {}, "cooldown"),
        (BoulderState(attempted=NOW - 100, failures=2), {}, "cooldown"),
        (BoulderState(failures=5), {}, "failures"),
        (BoulderState(iteration=5), {}, "budget"),
        (BoulderState(iteration=0, budget=0), {}, "budget"),
        (QUIET, {"work": UNKNOWN}, "check"),
        (transitions.complete_work(QUIET, "all is done"), {}, "complete"),
        (QUIET, {"work": DONE}, "complete"),
    ],
)
def test_each_gate_holds_it_back_alone(of: BoulderState, how: dict[str, object], gate: str) -> None:
    assert isinstance(decide(QUIET, NOW, SessionFacts(on=True, idle_since=NOW - 30, work=LEFT), LIMITS), Enforce)
    given_: dict[str, object] = {"on": True, "idle_since": NOW - 30, "work": LEFT, **how}
    assert named(of, SessionFacts(**given_)) == [gate]  # pyright: ignore[reportArgumentType]


@requirement("boulder.complete.checks")
def test_without_a_budget_it_enforces_five_times_and_with_one_as_often_as_that_says() -> None:
    for budget, times in ((None, 5), (2, 2), (9, 9)):
        of, now, count = BoulderState(budget=budget), NOW, 0
        while isinstance(decide(of, now, SessionFacts(on=True, idle_since=now - 30, work=LEFT), LIMITS), Enforce):
            of = transitions.end_turn(transitions.start_enforcement(of, now), now + 1)
            count, now = count + 1, now + 40
        assert count == of.iteration == times
        assert session_status(of, OPEN, LIMITS) == "EXHAUSTED"


def test_the_pause_doubles_with_every_failure_until_there_were_too_many() -> None:
    of, now, pauses = QUIET, NOW, list[float]()
    while isinstance(decide(of, now, SessionFacts(on=True, work=LEFT), LIMITS), Enforce):
        of = transitions.fail_enforcement(transitions.start_enforcement(of, now), None, now)
        decision = decide(of, now, SessionFacts(on=True, work=LEFT), LIMITS)
        if isinstance(decision, WaitUntil):
            pauses.append(decision.until - now)
            now = decision.until
    assert pauses == [60, 120, 240, 480]
    assert named(of, OPEN, now + 100_000) == ["failures"]
    assert of.iteration == 0
    assert isinstance(decide(transitions.resume(of), now + 100_000, SessionFacts(on=True, work=LEFT), LIMITS), Enforce)


def test_a_turn_of_its_own_that_fails_counts_once_and_one_that_works_begins_anew() -> None:
    of = transitions.start_enforcement(QUIET, NOW)
    failed = transitions.judge_turn(transitions.judge_turn(of, failed=True), failed=True)
    assert failed.failures == 1
    assert transitions.judge_turn(transitions.start_enforcement(failed, NOW), failed=True).failures == 2
    assert transitions.judge_turn(transitions.start_enforcement(failed, NOW), failed=False).failures == 0
    # That of a person is none of its own.
    assert transitions.judge_turn(transitions.record_user_message(of, NOW), failed=True).failures == 0


@given(kept)
def test_who_says_something_lets_it_go_on_and_gives_it_no_more_to_spend(of: BoulderState) -> None:
    told = transitions.record_user_message(of, NOW)
    assert told.complete is None and not told.enforced and told.failures == 0
    assert (told.iteration, told.budget, told.paused) == (of.iteration, of.budget, of.paused)
    assert told.stop_requested == of.stop_requested


@requirement("boulder.control.actions")
@given(kept)
def test_reset_opens_every_gate_that_it_has_closed_itself(of: BoulderState) -> None:
    again = transitions.reset(replace(of, budget=3))
    assert named(again, OPEN) == []
    assert again == BoulderState(last_activity=of.last_activity, budget=3)


@pytest.mark.parametrize(
    ("of", "how", "word"),
    [
        (QUIET, SessionFacts(), "OFF"),
        (transitions.pause(QUIET), OPEN, "PAUSED"),
        (transitions.stop(transitions.pause(QUIET)), OPEN, "STOPPED"),
        (QUIET, SessionFacts(on=True, enforcing=True), "ENFORCING"),
        (transitions.complete_work(QUIET, "done"), OPEN, "COMPLETE"),
        (BoulderState(failures=5), OPEN, "EXHAUSTED"),
        (QUIET, OPEN, "CONTINUOUS"),
    ],
)
def test_one_word_tells_how_it_stands(of: BoulderState, how: SessionFacts, word: str) -> None:
    assert session_status(of, how, LIMITS) == word
