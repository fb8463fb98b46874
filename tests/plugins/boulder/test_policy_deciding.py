"""When boulder enforces: through every gate that is open, and through none that is closed, whatever the moment."""

import math

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from rookery.plugins.boulder import kept as moves
from rookery.plugins.boulder.deciding import Enforce, Held, Look, Wait, decide, status
from rookery.plugins.boulder.gates import Facts, Limits, Work, gates
from rookery.plugins.boulder.kept import Kept
from tests.support.requirements import requirement

LIMITS = Limits()
LEFT, DONE, UNKNOWN = Work(True, "3 todos are open"), Work(False, "no todo is open"), Work(None, "no such file")
NOW = 10_000.0
OPEN = Facts(on=True, idle_since=NOW - 30)
QUIET = Kept()

moments = st.floats(0, 20_000)
facts = st.builds(
    Facts,
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
    Kept,
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


def named(of: Kept, how: Facts, now: float = NOW) -> list[str]:
    return [one.gate for one in gates(of, now, how, LIMITS)]


@requirement("boulder.gates.hold")
@given(kept, moments, facts)
def test_it_enforces_only_where_nothing_at_all_speaks_against_it(of: Kept, now: float, how: Facts) -> None:
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
    assert isinstance(decision, Look) == (free and how.work is None)


@requirement("boulder.gates.hold")
@given(kept, moments, facts)
def test_a_wait_ends_at_the_moment_that_it_names_and_not_before(of: Kept, now: float, how: Facts) -> None:
    decision = decide(of, now, how, LIMITS)
    if not isinstance(decision, Wait):
        return
    assert now < decision.until < math.inf
    assert isinstance(decide(of, (now + decision.until) / 2, how, LIMITS), Wait)
    assert isinstance(decide(of, decision.until, how, LIMITS), Enforce if how.work == LEFT else Look)


@requirement("boulder.gates.hold")
@given(kept, moments, moments, facts)
def test_what_is_held_is_held_however_much_time_goes_by(of: Kept, now: float, later: float, how: Facts) -> None:
    decision = decide(of, now, how, LIMITS)
    if isinstance(decision, Held):
        assert isinstance(decide(of, now + later, how, LIMITS), Held)
        assert all(one.reason for one in decision.gates)


@requirement("boulder.gates.hold")
@pytest.mark.parametrize(
    ("of", "how", "gate"),
    [
        (QUIET, {"on": False}, "off"),
        (QUIET, {"touched": False}, "untouched"),
        (moves.paused(QUIET), {}, "paused"),
        (moves.stopped(QUIET), {}, "stopped"),
        (Kept(enforced=True), {}, "enforced"),
        (QUIET, {"running": True}, "busy"),
        (QUIET, {"idle_since": NOW - 29.9}, "idle"),
        (QUIET, {"tool": "bash"}, "tool"),
        (QUIET, {"asks": 1}, "asks"),
        (QUIET, {"aborted_at": NOW - 2.9}, "aborted"),
        (Kept(attempted=NOW - 29.9), {}, "cooldown"),
        (Kept(attempted=NOW - 100, failures=2), {}, "cooldown"),
        (Kept(failures=5), {}, "failures"),
        (Kept(iteration=5), {}, "budget"),
        (Kept(iteration=0, budget=0), {}, "budget"),
        (QUIET, {"work": UNKNOWN}, "check"),
        (moves.completed(QUIET, "all is done"), {}, "complete"),
        (QUIET, {"work": DONE}, "complete"),
    ],
)
def test_each_gate_holds_it_back_alone(of: Kept, how: dict[str, object], gate: str) -> None:
    assert isinstance(decide(QUIET, NOW, Facts(on=True, idle_since=NOW - 30, work=LEFT), LIMITS), Enforce)
    given_: dict[str, object] = {"on": True, "idle_since": NOW - 30, "work": LEFT, **how}
    assert named(of, Facts(**given_)) == [gate]  # pyright: ignore[reportArgumentType]


@requirement("boulder.complete.checks")
def test_without_a_budget_it_enforces_five_times_and_with_one_as_often_as_that_says() -> None:
    for budget, times in ((None, 5), (2, 2), (9, 9)):
        of, now, count = Kept(budget=budget), NOW, 0
        while isinstance(decide(of, now, Facts(on=True, idle_since=now - 30, work=LEFT), LIMITS), Enforce):
            of = moves.rests(moves.enforced(of, now), now + 1)
            count, now = count + 1, now + 40
        assert count == of.iteration == times
        assert status(of, OPEN, LIMITS) == "EXHAUSTED"


def test_the_pause_doubles_with_every_failure_until_there_were_too_many() -> None:
    of, now, pauses = QUIET, NOW, list[float]()
    while isinstance(decide(of, now, Facts(on=True, work=LEFT), LIMITS), Enforce):
        of = moves.unsent(moves.enforced(of, now), None, now)
        decision = decide(of, now, Facts(on=True, work=LEFT), LIMITS)
        if isinstance(decision, Wait):
            pauses.append(decision.until - now)
            now = decision.until
    assert pauses == [60, 120, 240, 480]
    assert named(of, OPEN, now + 100_000) == ["failures"]
    assert of.iteration == 0
    assert isinstance(decide(moves.resumed(of), now + 100_000, Facts(on=True, work=LEFT), LIMITS), Enforce)


def test_a_turn_of_its_own_that_fails_counts_once_and_one_that_works_begins_anew() -> None:
    of = moves.enforced(QUIET, NOW)
    failed = moves.judged(moves.judged(of, failed=True), failed=True)
    assert failed.failures == 1
    assert moves.judged(moves.enforced(failed, NOW), failed=True).failures == 2
    assert moves.judged(moves.enforced(failed, NOW), failed=False).failures == 0
    # That of a person is none of its own.
    assert moves.judged(moves.spoken_to(of, NOW), failed=True).failures == 0


@given(kept)
def test_who_says_something_lets_it_go_on_and_gives_it_no_more_to_spend(of: Kept) -> None:
    told = moves.spoken_to(of, NOW)
    assert told.complete is None and not told.enforced and told.failures == 0
    assert (told.iteration, told.budget, told.paused) == (of.iteration, of.budget, of.paused)
    assert told.stop_requested == of.stop_requested


@requirement("boulder.control.actions")
@given(kept)
def test_reset_opens_every_gate_that_it_has_closed_itself(of: Kept) -> None:
    again = moves.reset(replace(of, budget=3))
    assert named(again, OPEN) == []
    assert again == Kept(last_activity=of.last_activity, budget=3)


@pytest.mark.parametrize(
    ("of", "how", "word"),
    [
        (QUIET, Facts(), "OFF"),
        (moves.paused(QUIET), OPEN, "PAUSED"),
        (moves.stopped(moves.paused(QUIET)), OPEN, "STOPPED"),
        (QUIET, Facts(on=True, enforcing=True), "ENFORCING"),
        (moves.completed(QUIET, "done"), OPEN, "COMPLETE"),
        (Kept(failures=5), OPEN, "EXHAUSTED"),
        (QUIET, OPEN, "CONTINUOUS"),
    ],
)
def test_one_word_tells_how_it_stands(of: Kept, how: Facts, word: str) -> None:
    assert status(of, how, LIMITS) == word
