"""Run OpenCode's interface on a plain terminal, and print when its output contained a text that matches.

`python plain_terminal.py OPENCODE URL SESSION PATTERN`, with the interface's environment. A line is `<text> <monotonic
ns>`, once per text; the first is `ready`, when the prompt was drawn. Ends at the end of stdin.
"""

import fcntl
import os
import pty
import re
import selectors
import signal
import struct
import sys
import termios
import time

_SIZE = struct.pack("HHHH", 40, 120, 0, 0)
_PROMPT = b"ctrl+p"


def main(opencode: str, url: str, session: str, pattern: str) -> None:
    pid, line = pty.fork()
    if not pid:
        fcntl.ioctl(0, termios.TIOCSWINSZ, _SIZE)
        os.execv(opencode, [opencode, "attach", url, "--session", session])
    fcntl.ioctl(line, termios.TIOCSWINSZ, _SIZE)
    try:
        _follow(line, re.compile(pattern.encode()))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _follow(line: int, expression: re.Pattern[bytes]) -> None:
    rest, seen = b"", set[bytes]()
    with selectors.DefaultSelector() as ready:
        ready.register(0, selectors.EVENT_READ)
        ready.register(line, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                data = os.read(key.fd, 1 << 20)
                now = time.monotonic_ns()
                if not data:
                    return
                if key.fd == 0:
                    continue
                rest = rest[-200:] + data
                if _PROMPT in rest and b"ready" not in seen:
                    seen.add(b"ready")
                    print("ready", now, flush=True)
                for match in expression.findall(rest):
                    if match not in seen:
                        seen.add(match)
                        print(match.decode(), now, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:5])
