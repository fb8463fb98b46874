"""Whether a terminal shows its session: by what stands on the screen, since nothing tells."""

import re
from collections.abc import Sequence

from rookery.sessions.records import MessageShown
from rookery.sessions.regions import regions
from rookery.sessions.screen import Screen

_WORD = re.compile(r"\w{3,}")
_WORDS = 6


def last_words(messages: Sequence[MessageShown]) -> frozenset[str]:
    """Words of which one at least is to be seen at the end of the conversation, however that is drawn."""
    said = (words[-_WORDS:] for one in reversed(messages) if (words := _WORD.findall(one.content)))
    return frozenset(next(said, ()))


def is_ready(screen: Screen, words: frozenset[str]) -> bool:
    """A message can be typed or something asks for an answer, and what was said last stands above it.

    By then OpenCode's interface has followed events for a while: toasts that came half a second earlier were drawn.
    """
    found = regions(screen)
    if found.prompt is None and found.dialog is None:
        return False
    text = screen.text
    return not words or any(word in text for word in words)
