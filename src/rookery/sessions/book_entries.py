"""What is kept of one message, and of its parts."""

from dataclasses import dataclass, field

from rookery.agents.records import MessageInfo
from rookery.sessions.records import MessageShown, ToolRun

# What a message or part costs beside its texts, about.
OVERHEAD = 600


@dataclass(slots=True)
class Piece:
    """What is kept of a part: its text, or the tool that it ran. `grown` has come behind the text since."""

    text: str = ""
    run: ToolRun | None = None
    whole: bool = False
    size: int = 0
    grown: list[str] = field(default_factory=list[str])

    @property
    def words(self) -> str:
        if self.grown:
            self.text = "".join([self.text, *self.grown])
            self.grown.clear()
        return self.text


@dataclass(slots=True)
class Entry:
    """One message. `version` tells when it changed last, `shown` how it looks when its turn is over or not."""

    info: MessageInfo
    pieces: dict[str, Piece] = field(default_factory=dict[str, Piece])
    version: int = 0
    shown: tuple[bool, int, MessageShown] | None = None

    @property
    def order(self) -> tuple[float, str]:
        return self.info.time.created, self.info.id

    @property
    def size(self) -> int:
        return OVERHEAD + sum(piece.size for piece in self.pieces.values())
