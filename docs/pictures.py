"""Draw docs/images/demo*.png: run `rookery demo` on a terminal, and draw its screen with Rookery's own renderer.

Run `.venv/bin/python docs/pictures.py`, and check the pictures afterwards.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rookery.sessions.drawing.picture import draw_picture
from rookery.sessions.terminal.cells import Screen
from rookery.sessions.terminal.emulator import Emulator

IMAGES = Path(__file__).parent / "images"
COLUMNS, ROWS = 100, 60
TIMEOUT_SECONDS = 600
# The end of the demo's output. After it, the demo waits for Ctrl-C.
LAST_OUTPUT = b"agent login"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder:
        screen = run_demo(Path(folder))
        (IMAGES / "demo.png").write_bytes(draw_picture(screen).data)
        (IMAGES / "demo-agent.png").write_bytes((Path(folder) / "fix-greeting.png").read_bytes())


def run_demo(pictures: Path) -> Screen:
    """Run the demo and return its screen at the end of the tour; it writes its screenshots to `pictures`."""
    emulator = Emulator(COLUMNS, ROWS, lambda _: None)
    emulator.feed(b"$ rookery demo\r\n")
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    command = [Path(sys.executable).with_name("rookery"), "demo", "--pictures", str(pictures)]
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm-256color"}
    # Its notes go to the terminal. Its final output is not part of the picture.
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=terminal) as demo:
        os.close(terminal)
        assert demo.stdout is not None
        output = b""
        while LAST_OUTPUT not in output:
            ready, _, _ = select.select([master, demo.stdout], [], [], TIMEOUT_SECONDS)
            if not ready or demo.poll() is not None:
                sys.exit(f"the demo has not reached its end:\n{emulator.text}")
            if master in ready:
                emulator.feed(os.read(master, 65_536))
            if demo.stdout in ready:
                output += os.read(demo.stdout.fileno(), 65_536)
        screen = emulator.screen()
        demo.send_signal(signal.SIGINT)
        # Read until the terminal is closed, or the demo would block on its last output.
        with suppress(OSError):
            while os.read(master, 65_536):
                pass
    os.close(master)
    used = max(number for number, line in enumerate(screen.lines, 1) if line.strip())
    return replace(screen, cells=screen.cells[:used], rows=used, cursor=replace(screen.cursor, visible=False))


if __name__ == "__main__":
    main()
