"""Opens an address in the user's browser. Standard library only, for the command line; no shell sees the address."""

import os
import shlex
import shutil
import subprocess
import sys

_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME")


def open_browser(url: str) -> bool:
    """Whether something was started that may show it; nothing is where there is no screen, as over ssh."""
    if not url.startswith(("http://", "https://")):
        return False
    command = _command()
    if not command:
        return False
    nothing = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            [*command, url], stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
        )
    except OSError:
        return False
    # It outlives the command that asked for it, and is the init process's to reap.
    process.returncode = 0
    return True


def _command() -> list[str]:
    """The user's own choice, or what the system opens addresses with."""
    if own := os.environ.get("BROWSER"):
        try:
            words = [word for word in shlex.split(own) if word != "%s"]
        except ValueError:
            words = []
        return words if words and shutil.which(words[0]) else []
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in _SCREENS):
        return []
    names = ("open",) if sys.platform == "darwin" else ("xdg-open", "wslview")
    return [found for name in names if (found := shutil.which(name))][:1]
