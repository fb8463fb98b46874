"""The state of sessions and the status of an agent, from snapshots and events in any possible order."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, strategies as st

from rookery.agents.opencode.events import (
    AgentEvent,
    AskAnswered,
    AskOpened,
    SessionDeleted,
    SessionStatusChanged,
    SessionUpdated,
    TurnFailed,
)
from rookery.agents.opencode.records import (
    Ask,
    GatewayPermission,
    Permission,
    Question,
    QuestionItem,
    Session,
    SessionStatus,
    SessionTimes,
    TurnError,
)
from rookery.agents.status import SessionsSnapshot, SessionState, StatusTracker, summarize_status
from tests.support.requirements import requirement

HERE = "/work/日本"
NO_TIME = SessionTimes()
BUSY, IDLE = SessionStatus("busy"), SessionStatus("idle")
RETRY = SessionStatus("retry", attempt=2, message="overloaded")


def session(
    id_: str,
    parent: str | None = None,
    *,
    title: str = "",
    directory: str = HERE,
    time: SessionTimes = NO_TIME,
) -> Session:
    return Session(id_, directory, title or f"about {id_}", parent, time=time)


def permission(id_: str, of: str) -> Permission:
    return Permission(id_, of, "bash", ("rm x",))


def make_tracker(
    *sessions: Session,
    doing: Mapping[str, SessionStatus] | None = None,
    asks: tuple[Ask, ...] = (),
    cut_off: frozenset[str] = frozenset(),
) -> StatusTracker:
    made = StatusTracker(HERE)
    made.load_snapshot(SessionsSnapshot(sessions, doing or {}, asks, cut_off))
    return made


def apply_events(made: StatusTracker, *events: AgentEvent) -> StatusTracker:
    for event in events:
        made.apply(event)
    return made


def states(made: StatusTracker) -> dict[str, str]:
    return {one.id: one.state for one in made.sessions()}


def told(made: StatusTracker) -> object:
    """As programs see it."""
    return msgspec.to_builtins(summarize_status(made.sessions()))


# ---- the agent's status


@requirement("agent.status.values")
@pytest.mark.parametrize(
    ("doing", "wanted"),
    [
        ({}, {"type": "none", "counts": {"idle": 0, "busy": 0, "total": 0}}),
        ({"a": IDLE, "b": IDLE}, {"type": "idle", "counts": {"idle": 2, "busy": 0, "total": 2}}),
        ({"a": BUSY}, {"type": "busy", "counts": {"idle": 0, "busy": 1, "total": 1}}),
        ({"a": BUSY, "b": RETRY}, {"type": "busy", "counts": {"idle": 0, "busy": 2, "total": 2}}),
        ({"a": BUSY, "b": IDLE, "c": IDLE}, {"type": "mixed", "counts": {"idle": 2, "busy": 1, "total": 3}}),
    ],
)
def test_the_status_has_the_shape_of_the_seed(doing: dict[str, SessionStatus], wanted: object) -> None:
    made = make_tracker(*(session(id_) for id_ in doing))
    apply_events(made, *(SessionStatusChanged(id_, one) for id_, one in doing.items()))
    assert told(made) == wanted


@requirement("agent.status.values")
def test_a_session_that_waits_for_a_permission_is_idle_and_asking() -> None:
    made = apply_events(make_tracker(session("a")), SessionStatusChanged("a", BUSY), AskOpened(permission("p", "a")))
    (found,) = made.sessions()
    assert (found.state, [ask.text for ask in found.asks]) == ("asking", ["bash: rm x"])
    assert told(made) == {"type": "idle", "counts": {"idle": 1, "busy": 0, "total": 1}}

    apply_events(made, AskAnswered("a", "p"))
    assert (made.sessions()[0].state, made.sessions()[0].asks) == ("busy", ())


@requirement("agent.status.values")
def test_a_session_asks_until_all_its_questions_are_answered() -> None:
    question = Question("q", "a", (QuestionItem("Which?"), QuestionItem("When?")))
    made = apply_events(
        make_tracker(session("a")),
        SessionStatusChanged("a", BUSY),
        AskOpened(question),
        AskOpened(permission("p", "a")),
    )
    assert [(ask.kind, ask.text) for ask in made.sessions()[0].asks] == [
        ("permission", "bash: rm x"),
        ("question", "Which? / When?"),
    ]
    assert states(apply_events(made, AskAnswered("a", "p"))) == {"a": "asking"}
    assert states(apply_events(made, AskAnswered("a", "q"))) == {"a": "busy"}


def test_a_model_that_is_asked_again_is_told_with_its_reason() -> None:
    made = apply_events(make_tracker(session("a")), SessionStatusChanged("a", RETRY))
    assert made.sessions() == (SessionState("a", "about a", "retry", detail="overloaded"),)


# ---- which sessions count


def test_children_do_not_count_and_what_they_ask_keeps_their_root_waiting() -> None:
    made = make_tracker(session("root"), session("child", "root"), session("grandchild", "child"), session("other"))
    busy = [SessionStatusChanged(id_, BUSY) for id_ in ("root", "child", "grandchild")]
    apply_events(made, *busy)
    assert states(made) == {"root": "busy", "other": "idle"}
    apply_events(made, AskOpened(permission("p", "grandchild")))
    assert states(made) == {"root": "asking", "other": "idle"}
    apply_events(made, SessionStatusChanged("grandchild", IDLE))
    assert states(made) == {"root": "busy", "other": "idle"}


def test_sessions_of_other_folders_and_archived_ones_do_not_count() -> None:
    archived = session("archived", time=SessionTimes(archived=1))
    made = make_tracker(session("a"), session("b", directory="/elsewhere"), archived)
    assert states(made) == {"a": "idle"}
    apply_events(
        made,
        SessionUpdated(session("c", directory="/elsewhere")),
        SessionUpdated(session("a", time=SessionTimes(archived=1))),
    )
    assert states(made) == {}


def test_a_session_that_is_made_counts_and_one_that_is_deleted_does_not() -> None:
    made = apply_events(
        make_tracker(), SessionUpdated(session("a")), SessionStatusChanged("a", BUSY), AskOpened(permission("p", "a"))
    )
    assert states(made) == {"a": "asking"}
    assert states(apply_events(made, SessionDeleted("a"))) == {}
    assert states(apply_events(made, SessionUpdated(session("a")))) == {"a": "idle"}


def test_events_of_sessions_that_nobody_knows_change_nothing() -> None:
    made = apply_events(
        make_tracker(session("a")),
        SessionStatusChanged("x", BUSY),
        AskOpened(permission("p", "x")),
        TurnFailed("x", TurnError()),
    )
    assert states(apply_events(made, SessionStatusChanged("x", IDLE), SessionDeleted("y"), AskAnswered("x", "q"))) == {
        "a": "idle"
    }


def test_sessions_that_are_each_other_s_parents_make_no_endless_search() -> None:
    made = make_tracker(session("a", "b"), session("b", "a"), doing={"a": BUSY}, asks=(permission("p", "a"),))
    assert states(made) == {}


def test_the_session_that_was_used_last_comes_first() -> None:
    made = make_tracker(session("old", time=SessionTimes(updated=1)), session("new", time=SessionTimes(updated=2)))
    apply_events(made, SessionUpdated(session("newest", time=SessionTimes(updated=3))))
    assert list(states(made)) == ["newest", "new", "old"]


def test_a_root_was_used_when_a_child_of_it_was() -> None:
    made = make_tracker(session("a", time=SessionTimes(updated=1)))
    apply_events(made, SessionUpdated(session("b", "a", time=SessionTimes(updated=3))))
    assert made.last_used() == {"a": 3}


def test_an_ask_of_the_gateway_outlives_a_snapshot_and_not_its_turn() -> None:
    ask = GatewayPermission("g", "a", "files__write", ("{}",))
    made = apply_events(
        make_tracker(session("a")), SessionStatusChanged("a", BUSY), AskOpened(ask), AskOpened(permission("p", "a"))
    )
    # OpenCode knows only its own asks.
    made.load_snapshot(SessionsSnapshot((session("a"),), {"a": BUSY}))
    assert [each.asks for each in made.sessions()] == [(ask,)]
    made.load_snapshot(SessionsSnapshot((session("a"),)))
    assert [each.asks for each in made.sessions()] == [()]


# ---- what is left behind


def test_what_an_aborted_turn_asked_is_waited_for_no_more() -> None:
    made = apply_events(
        make_tracker(session("a")),
        SessionStatusChanged("a", BUSY),
        AskOpened(permission("p", "a")),
        SessionStatusChanged("a", IDLE),
    )
    assert states(made) == {"a": "idle"}
    assert states(apply_events(made, SessionStatusChanged("a", BUSY))) == {"a": "busy"}
    assert states(make_tracker(session("a"), asks=(permission("p", "a"),))) == {"a": "idle"}


@requirement("agent.crash.interrupted")
def test_a_turn_that_was_cut_off_is_interrupted_until_another_runs() -> None:
    made = make_tracker(session("a"), session("b"), cut_off=frozenset({"a"}))
    assert states(made) == {"a": "interrupted", "b": "idle"}
    assert told(made) == {"type": "idle", "counts": {"idle": 2, "busy": 0, "total": 2}}
    apply_events(made, SessionUpdated(session("a", title="renamed")))
    assert states(made) == {"a": "interrupted", "b": "idle"}
    assert states(apply_events(made, SessionStatusChanged("a", BUSY))) == {"a": "busy", "b": "idle"}
    assert states(apply_events(made, SessionStatusChanged("a", IDLE))) == {"a": "idle", "b": "idle"}


def test_what_is_said_of_a_session_after_its_turn_does_not_make_it_busy() -> None:
    made = apply_events(
        make_tracker(session("a")),
        SessionStatusChanged("a", BUSY),
        SessionStatusChanged("a", IDLE),
        SessionUpdated(session("a")),
    )
    assert states(apply_events(made, TurnFailed("a", TurnError("APIError")), AskAnswered("a", "p"))) == {"a": "idle"}


# ---- any order


@dataclass
class World:
    """What OpenCode does: it changes, says so in events, and can be asked how it is."""

    sessions: dict[str, Session] = field(default_factory=dict[str, Session])
    doing: dict[str, SessionStatus] = field(default_factory=dict[str, SessionStatus])
    asks: dict[str, Permission] = field(default_factory=dict[str, Permission])
    said: list[AgentEvent] = field(default_factory=list[AgentEvent])

    def do(self, what: str, id_: str) -> None:
        known = self.sessions.get(id_)
        if what == "make" and known is None:
            parent = min(self.sessions, default=None) if id_ > "m" else None
            self.sessions[id_] = session(id_, parent)
            self.said.append(SessionUpdated(self.sessions[id_]))
        elif known is None:
            return
        elif what == "delete":
            del self.sessions[id_]
            self._end(id_)
            self.said.append(SessionDeleted(id_))
        elif what in ("busy", "retry"):
            self.doing[id_] = BUSY if what == "busy" else RETRY
            self.said.append(SessionStatusChanged(id_, self.doing[id_]))
        elif what == "idle":
            self._end(id_)
            self.said += [SessionStatusChanged(id_, IDLE), SessionStatusChanged(id_, IDLE), SessionUpdated(known)]
        elif what == "ask" and id_ in self.doing:
            self.asks[f"p-{id_}"] = permission(f"p-{id_}", id_)
            self.said.append(AskOpened(self.asks[f"p-{id_}"]))
        elif what == "answer" and f"p-{id_}" in self.asks:
            del self.asks[f"p-{id_}"]
            self.said.append(AskAnswered(id_, f"p-{id_}"))

    def _end(self, id_: str) -> None:
        """What was asked is not waited for any more, and nothing says so."""
        self.doing.pop(id_, None)
        self.asks.pop(f"p-{id_}", None)

    def snapshot(self) -> SessionsSnapshot:
        return SessionsSnapshot(tuple(self.sessions.values()), dict(self.doing), tuple(self.asks.values()))


DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["make", "make", "delete", "busy", "retry", "idle", "ask", "answer"]), st.sampled_from("abcxyz")
    ),
    max_size=40,
)


@requirement("agent.restart.policy")
@given(before=DEEDS, after=DEEDS)
def test_f02_a_snapshot_tells_the_same_whatever_was_heard_before(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    world, other = World(), World()
    for deed in before:
        other.do(*deed)
    for deed in after:
        world.do(*deed)
    made, fresh = apply_events(StatusTracker(HERE), *other.said), StatusTracker(HERE)
    for one in (made, fresh):
        one.load_snapshot(world.snapshot())
    assert made.sessions() == fresh.sessions()
    assert set(states(made)) == {id_ for id_, one in world.sessions.items() if one.parent is None}


@requirement("agent.restart.policy")
@given(missed=DEEDS, meanwhile=DEEDS, later=DEEDS)
def test_f02_events_that_came_while_a_snapshot_was_read_lead_to_how_it_is_in_the_end(
    missed: list[tuple[str, str]], meanwhile: list[tuple[str, str]], later: list[tuple[str, str]]
) -> None:
    """`missed` was said before the subscription, `meanwhile` until the snapshot was read, which shows all of it."""
    world = World()
    for deed in missed:
        world.do(*deed)
    subscribed = len(world.said)
    for deed in meanwhile:
        world.do(*deed)
    snapshot = world.snapshot()
    for deed in later:
        world.do(*deed)
    made = StatusTracker(HERE)
    made.load_snapshot(snapshot)
    apply_events(made, *world.said[subscribed:])
    true = StatusTracker(HERE)
    true.load_snapshot(world.snapshot())
    assert made.sessions() == true.sessions()
