"""Hidden children of sessions, in which tools run: kept for the next call, and left behind when they are worn."""

from collections import Counter, OrderedDict
from dataclasses import dataclass

from rookery.agents.client import AgentClient
from rookery.agents.records import Session
from rookery.sessions.hidden import TITLE
from rookery.system.errors import RookeryError

AT_ONCE = 16
# All that a child has done is sent along with every call.
_CALLS, _BYTES = 50, 200_000
_SESSIONS = 500


@dataclass
class Child:
    """`rules` are those of the session at the time; `size` is about what its calls have said and answered."""

    id: str
    session: str
    rules: tuple[dict[str, str], ...]
    calls: int = 0
    size: int = 0

    @property
    def worn(self) -> bool:
        return self.calls >= _CALLS or self.size >= _BYTES


class Children:
    """Each runs one tool at a time, and a session has as many as it has tools running."""

    def __init__(self) -> None:
        # Of the sessions that were used last.
        self._free: OrderedDict[str, list[Child]] = OrderedDict()
        self._taken: Counter[str] = Counter()

    async def take(self, client: AgentClient, session: Session) -> Child:
        """One that does nothing, and has the rules that the session has now."""
        if self._taken[session.id] >= AT_ONCE:
            raise RookeryError(
                "invalid-input", f"{AT_ONCE} tools run in {session.id} already", "wait until one of them has ended"
            )
        self._taken[session.id] += 1
        free = self._free.get(session.id, [])
        while free:
            if (child := free.pop()).rules == session.permission:
                return child
        try:
            made = await client.create_session(
                title=TITLE, parent=session.id, agent=session.agent, permission=session.permission or None
            )
        except BaseException:
            self._release(session.id)
            raise
        return Child(made.id, session.id, session.permission)

    def give_back(self, child: Child, size: int) -> None:
        """It has run a call of this size, and is idle."""
        self._release(child.session)
        child.calls += 1
        child.size += size
        if not child.worn:
            self._free.setdefault(child.session, []).append(child)
            self._free.move_to_end(child.session)
            if len(self._free) > _SESSIONS:
                self._free.popitem(last=False)

    def leave(self, child: Child) -> None:
        """It may still be busy, or is gone."""
        self._release(child.session)

    def _release(self, session: str) -> None:
        self._taken[session] -= 1
        if not self._taken[session]:
            del self._taken[session]
