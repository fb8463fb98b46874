"""Start programs from the command line: the daemon in the background, a program on the terminal, the browser.

Standard library only, so that the command line starts fast. Arguments never pass through a shell.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from rookery.system.errors import RookeryError

_DISPLAY_VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME")


def start_detached(argv: Callable[[int], Sequence[str]], output_path: str) -> int:
    """Start `argv` in its own session with output to the file `output_path`; return the reading end of its ready pipe.

    `argv` receives the file descriptor of the writing end. The pipe closes when the daemon is ready, or dead.
    """
    reading, writing = os.pipe()
    try:
        os.set_inheritable(writing, True)
        output = os.open(output_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(
                list(argv(writing)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writing,),
                start_new_session=True,
            )
        finally:
            os.close(output)
        _reap_later(process)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return reading


def run_in_foreground(argv: Sequence[str], folder: str, environment: Mapping[str, str]) -> int:
    """Run a program and return its exit code as a shell reports it: 128 plus the number of a signal that ended it.

    Keyboard input, including Ctrl-C, goes to the program. SIGTERM and SIGHUP to this process are forwarded to it.
    """
    process: subprocess.Popen[bytes] | None = None

    def forward(number: int, frame: FrameType | None) -> None:
        if process is not None:
            process.send_signal(number)

    def ignore(number: int, frame: FrameType | None) -> None:
        """Ignore the signal. Not SIG_IGN, which the program would inherit."""

    handlers = {signal.SIGINT: ignore, signal.SIGTERM: forward, signal.SIGHUP: forward}
    old_handlers = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        process = subprocess.Popen(argv, cwd=folder, env=environment)
        code = process.wait()
    except OSError as error:
        raise RookeryError(
            "spawn-failed", f"cannot run {argv[0]}: {error.strerror}", "give the name or path of a program"
        ) from None
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def open_browser(url: str) -> bool:
    """Start a browser with a URL; return whether one was started. Without a screen, as over ssh, none is."""
    if not url.startswith(("http://", "https://")):
        return False
    command = _browser_command()
    if not command:
        return False
    nothing = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            [*command, url], stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
        )
    except OSError:
        return False
    _reap_later(process)
    return True


def _reap_later(process: "subprocess.Popen[bytes]") -> None:
    """Reap a process that nobody waits for when it ends: a program that uses `rookery.connect` may live longer.

    If this process ends first, as a command does, the init process reaps it.
    """
    process.returncode = 0  # otherwise Popen warns of a process that is still running

    def reap() -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, 0)

    threading.Thread(target=reap, daemon=True).start()


def _browser_command() -> list[str]:
    """Return the command of `$BROWSER`, or the system's program for URLs; empty if there is none."""
    if browser := os.environ.get("BROWSER"):
        try:
            words = [word for word in shlex.split(browser) if word != "%s"]
        except ValueError:
            words = []
        return words if words and shutil.which(words[0]) else []
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in _DISPLAY_VARIABLES):
        return []
    names = ("open",) if sys.platform == "darwin" else ("xdg-open", "wslview")
    return [path for name in names if (path := shutil.which(name))][:1]
