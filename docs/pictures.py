"""Makes the pictures of docs/images/demo*.png anew: `rookery demo` is run, and what is seen of it is drawn by Rookery.

Run it with `.venv/bin/python docs/pictures.py`, and look at what came of it.
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
SECONDS = 600
# The last line of what the demo answers; then it only waits for Ctrl-C.
LAST = b"agent login"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder:
        screen = run_demo(Path(folder))
        (IMAGES / "demo.png").write_bytes(draw_picture(screen).data)
        (IMAGES / "demo-agent.png").write_bytes((Path(folder) / "fix-greeting.png").read_bytes())


def run_demo(pictures: Path) -> Screen:
    """What stands on a terminal when the tour is over; its screenshots are in `pictures` then."""
    emulator = Emulator(COLUMNS, ROWS, lambda _: None)
    emulator.feed(b"$ rookery demo\r\n")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    command = [Path(sys.executable).with_name("rookery"), "demo", "--pictures", str(pictures)]
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm-256color"}
    # What it tells goes to the terminal; what it answers in the end is not for the picture.
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=theirs) as demo:
        os.close(theirs)
        assert demo.stdout is not None
        answered = b""
        while LAST not in answered:
            ready, _, _ = select.select([ours, demo.stdout], [], [], SECONDS)
            if not ready or demo.poll() is not None:
                sys.exit(f"the demo has not come to its end:\n{emulator.text}")
            if ours in ready:
                emulator.feed(os.read(ours, 65_536))
            if demo.stdout in ready:
                answered += os.read(demo.stdout.fileno(), 65_536)
        screen = emulator.screen()
        demo.send_signal(signal.SIGINT)
        # What it says to its end has to be read, or it could not go on; then reading fails.
        with suppress(OSError):
            while os.read(ours, 65_536):
                pass
    os.close(ours)
    used = max(number for number, line in enumerate(screen.lines, 1) if line.strip())
    return replace(screen, cells=screen.cells[:used], rows=used, cursor=replace(screen.cursor, visible=False))


if __name__ == "__main__":
    main()
