"""Whether a terminal shows its session: by what stands on the screen, since nothing else tells."""

import re
from collections.abc import Sequence

from rookery.sessions.records import MessageShown
from rookery.sessions.regions import regions
from rookery.sessions.screen import Screen

_WORD = re.compile(r"\w{3,}")
_WORDS = 6
# What OpenCode calls its window: by the session's title, cut where that is long, or by its own name if it has none yet.
_TITLED, _CUT, _NAME = "OC | ", "…", "OpenCode"
_UNTITLED = re.compile(r"(New|Child) session - \d{4}-")


def last_words(messages: Sequence[MessageShown]) -> frozenset[str]:
    """Words of which one at least is to be seen at the end of the conversation, however that is drawn."""
    said = (words[-_WORDS:] for one in reversed(messages) if (words := _WORD.findall(one.content)))
    return frozenset(next(said, ()))


def may_be_ready(text: str, words: frozenset[str]) -> bool:
    """What can be told by the text alone, which takes a twentieth of the time; most frames of a start end here."""
    return bool(text.strip()) and (not words or any(word in text for word in words))


def is_ready(screen: Screen, words: frozenset[str]) -> bool:
    """A message can be typed or something asks for an answer, and what was said last stands above it.

    By then OpenCode's interface has followed events for a while: toasts that came half a second earlier were drawn.
    """
    found = regions(screen)
    return (found.prompt is not None or found.dialog is not None) and may_be_ready(screen.text, words)


def shows_another(window: str, title: str) -> bool:
    """Whether a terminal has left the session of this title, as keys can make it: by what its window is called."""
    if window == _NAME:
        return _UNTITLED.match(title) is None
    shown = window.removeprefix(_TITLED)
    if shown == window:
        return False
    return not title.startswith(shown.removesuffix(_CUT)) if shown.endswith(_CUT) else shown != title
