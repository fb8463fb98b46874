"""Signs that models are fond of and the font does not have, as others that look alike, in the colour that they have."""

from typing import NamedTuple

_GREEN, _RED, _YELLOW, _BLUE, _ORANGE = "#3fb950", "#f85149", "#e3b341", "#58a6ff", "#f0883e"
_DARK, _LIGHT = "#6e7681", "#f0f6fc"


class Alike(NamedTuple):
    """Without a colour it is drawn in that of its cell."""

    char: str
    colour: str | None = None


ALIKE = {
    "✅": Alike("✔", _GREEN),
    "❌": Alike("✘", _RED),
    "❎": Alike("✘", _GREEN),
    "❗": Alike("!", _RED),
    "❓": Alike("?", _RED),
    "⛔": Alike("⊖", _RED),
    "🚫": Alike("⊘", _RED),
    "⭐": Alike("★", _YELLOW),
    "🌟": Alike("★", _YELLOW),
    "✨": Alike("✦", _YELLOW),
    "➕": Alike("+"),
    "➖": Alike("-"),
    "➗": Alike("÷"),
    "🔴": Alike("●", _RED),
    "🟠": Alike("●", _ORANGE),
    "🟡": Alike("●", _YELLOW),
    "🟢": Alike("●", _GREEN),
    "🔵": Alike("●", _BLUE),
    "⚫": Alike("●", _DARK),
    "⚪": Alike("●", _LIGHT),
    "🟥": Alike("■", _RED),
    "🟧": Alike("■", _ORANGE),
    "🟨": Alike("■", _YELLOW),
    "🟩": Alike("■", _GREEN),
    "🟦": Alike("■", _BLUE),
    "⬛": Alike("■", _DARK),
    "⬜": Alike("■", _LIGHT),
    "🔶": Alike("◆", _ORANGE),
    "🔷": Alike("◆", _BLUE),
    "⏺": Alike("●"),
    "⏹": Alike("■"),
    "⏵": Alike("▶"),
    "⏴": Alike("◀"),
    "⁃": Alike("-"),
    "⎿": Alike("└"),
    "⎯": Alike("─"),
    "⟳": Alike("↻"),
    "⟲": Alike("↺"),
    "ℹ": Alike("i"),
}
