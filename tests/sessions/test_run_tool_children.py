"""Hidden child sessions are reused within their limits."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from rookery.agents.opencode.api import AgentClient
from rookery.agents.opencode.records import Session
from rookery.sessions.conversion import HIDDEN_TITLE
from rookery.sessions.run_tool import MAX_CONCURRENT_CALLS, HiddenChild, HiddenChildPool
from rookery.system.errors import RookeryError

pytestmark = pytest.mark.anyio

ASK = {"permission": "bash", "pattern": "*", "action": "ask"}


@dataclass
class Nursery:
    """Stands in for OpenCode's client: all that is asked of it here is a new session."""

    made: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    broken: bool = False

    async def create_session(self, **given: Any) -> Session:
        if self.broken:
            raise RookeryError("agent-unavailable", "it is gone")
        self.made.append(given)
        return Session(f"ses_child{len(self.made)}")

    async def child(self, children: HiddenChildPool, *rules: dict[str, str], session: str = "ses_1") -> HiddenChild:
        parent = Session(session, agent="plan", permission=rules)
        return await children.take(cast(AgentClient, self), parent)


async def test_a_child_is_used_again_until_the_rules_change_or_it_is_worn() -> None:
    children, nursery = HiddenChildPool(), Nursery()
    first = await nursery.child(children, ASK)
    assert nursery.made == [{"title": HIDDEN_TITLE, "parent": "ses_1", "agent": "plan", "permission": (ASK,)}]
    beside = await nursery.child(children, ASK)
    assert beside.id != first.id
    children.discard(beside)
    children.release(first, 10)
    assert await nursery.child(children, ASK) is first
    children.release(first, 10)
    other = await nursery.child(children)
    assert other is not first and nursery.made[-1]["permission"] is None
    children.release(other, 10**6)
    assert await nursery.child(children) is not other

    many = again = await nursery.child(children, session="ses_2")
    uses = 0
    while again is many:
        children.release(many, 1)
        again = await nursery.child(children, session="ses_2")
        uses += 1
    assert uses == 50


async def test_a_session_has_only_so_many_at_once_and_those_that_failed_do_not_count() -> None:
    children, nursery = HiddenChildPool(), Nursery()
    nursery.broken = True
    for _ in range(MAX_CONCURRENT_CALLS + 1):
        with pytest.raises(RookeryError, match="it is gone"):
            await nursery.child(children)
    nursery.broken = False
    taken = [await nursery.child(children) for _ in range(MAX_CONCURRENT_CALLS)]
    with pytest.raises(RookeryError, match=f"{MAX_CONCURRENT_CALLS} tools are already running") as caught:
        await nursery.child(children)
    assert caught.value.code == "invalid-input"
    assert await nursery.child(children, session="ses_2")
    children.release(taken[0], 1)
    assert await nursery.child(children) is taken[0]
