"""Runs a program on the user's own terminal until it ends. Standard library only, for the command line."""

import signal
import subprocess
from collections.abc import Mapping, Sequence

from rookery.system.errors import RookeryError


def run_in_foreground(argv: Sequence[str], folder: str, environment: Mapping[str, str]) -> int:
    """Its exit code, as shells tell it. What is typed is the program's, Ctrl-C too."""
    # Not SIG_IGN, which the program would inherit.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        code = subprocess.Popen(argv, cwd=folder, env=environment).wait()
    except OSError as error:
        raise RookeryError("spawn-failed", f"{argv[0]} cannot be run: {error.strerror}", "name a program") from None
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code
