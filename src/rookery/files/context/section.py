"""One part of a project's context, and how much of a model's attention it costs."""

import hashlib
from dataclasses import dataclass
from urllib.parse import quote

# Models read code at three to four bytes a token; text in other scripts costs more bytes, and more tokens.
_BYTES_A_TOKEN = 3.5


@dataclass(frozen=True)
class Section:
    """`key` begins with the name of its source; priority 1 comes first; `untrusted` text is none of ours."""

    key: str
    title: str
    priority: int
    text: str
    untrusted: bool = True

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.title}\0{self.text}".encode()).hexdigest()[:16]

    @property
    def uri(self) -> str:
        """Where the whole of it can be read."""
        return f"context://{quote(self.key)}"


def estimate(text: str) -> int:
    """About how many tokens a text has; rather more than fewer. Parts never add up to less than the whole."""
    return -int(-len(text.encode()) // _BYTES_A_TOKEN)


def beginning(text: str, tokens: int) -> str:
    """The first lines of a text, as many as have room in so many tokens."""
    room = text.encode()[: max(int(tokens * _BYTES_A_TOKEN), 0)].decode("utf-8", "ignore")
    return room if len(room) == len(text) else room.rpartition("\n")[0]
