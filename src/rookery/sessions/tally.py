"""How many messages a session has, and how its last turn ended: known also of sessions whose messages are not held."""

from collections.abc import Iterable
from dataclasses import dataclass

from rookery.agents.events import TurnFailed
from rookery.agents.message_events import MessageGone, MessageSeen
from rookery.agents.records import MessageInfo
from rookery.sessions.shown import failure


@dataclass
class Tally:
    """`updated` is when OpenCode changed the session last, as far as this knows."""

    updated: float = 0
    count: int = 0
    error: str | None = None
    # Whether a turn has failed or was ended since the newest message of a person.
    failed: bool = False
    # The newest one; ids are in the order of time.
    newest: str = ""

    @staticmethod
    def of(infos: Iterable[MessageInfo], updated: float) -> "Tally":
        made = Tally(updated)
        for info in infos:
            made._add(info)
        return made

    def hear(self, event: MessageSeen | MessageGone | TurnFailed) -> None:
        match event:
            case MessageSeen(_, info):
                self._add(info)
            case MessageGone(_, _):
                self.count = max(self.count - 1, 0)
            case TurnFailed(_, fault):
                self.failed = True
                self.error = failure(fault) or self.error

    def _add(self, info: MessageInfo) -> None:
        if info.id > self.newest:
            self.newest = info.id
            self.count += 1
            if info.role == "user":
                self.error, self.failed = None, False
        if info.role == "assistant" and info.id == self.newest:
            self.error = failure(info.error)
