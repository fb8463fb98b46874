"""OpenCode's own interface: how it is started, apart from the terminal that the daemon itself may have."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from rookery.agents.environment import USERNAME
from rookery.system.errors import RookeryError

Size = tuple[int, int]

COLUMNS, ROWS = 120, 40
_COLUMNS, _ROWS = (20, 400), (5, 200)
# As with `rookery agent attach`: what lies in the folder that it is started from is code that nobody has approved.
FOLDER = Path("/")
_OURS = {
    "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
}
# They tell of the terminal that the daemon was started in, and of colours that are not wanted there.
_NOT_OURS = ("TMUX", "STY", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "COLORFGBG", "SSH_TTY")
_NOR = ("TERM_", "TERMINAL_", "KITTY_", "WEZTERM_", "GHOSTTY_", "ITERM_", "VTE_", "ALACRITTY_", "KONSOLE_", "WT_")


class Interface(msgspec.Struct, frozen=True):
    """The program, the agent that it attaches to, and the environment of the user."""

    opencode: Path
    url: str
    password: str
    user: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """With the password: what stands on a command line, everybody can read."""
        user = {name: value for name, value in self.user.items() if name not in _NOT_OURS and not name.startswith(_NOR)}
        language = {} if any(user.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")) else {"LANG": "C.UTF-8"}
        login = {"OPENCODE_SERVER_USERNAME": USERNAME, "OPENCODE_SERVER_PASSWORD": self.password}
        return {**user, **language, **_OURS, **login}


def require_size(size: Size) -> Size:
    """Columns and rows that a terminal can have."""
    for value, (least, most), what in zip(size, (_COLUMNS, _ROWS), ("columns", "rows"), strict=True):
        if not least <= value <= most:
            raise RookeryError("invalid-input", f"a screen cannot have {value} {what}", f"give {least} to {most}")
    return size
