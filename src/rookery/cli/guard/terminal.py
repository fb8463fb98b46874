"""The controlling terminal, where a person approves: no option and no pipe can reply for them."""

import os
from types import TracebackType
from typing import Self

from rookery.cli import output
from rookery.cli.output import visible
from rookery.daemon_client.failure import Failure


class Terminal:
    """The controlling terminal, even if stdin and stdout are redirected."""

    def __enter__(self) -> Self:
        try:
            self._fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            raise Failure("needs-approval", "approvals need a person at a terminal", "run it in a terminal") from None
        self.out = os.fdopen(os.dup(self._fd), "w", encoding="utf-8", errors="backslashreplace")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.out.close()
        os.close(self._fd)

    def write_line(self, text: str, style: str | None = None) -> None:
        self.out.write((output.paint(text, style, self.out) if style else text) + "\n")

    def ask(self, question: str) -> bool:
        """Ask, and return whether the reply is y or yes. Input typed before the question is discarded."""
        import termios

        self.out.flush()
        termios.tcflush(self._fd, termios.TCIFLUSH)
        self.out.write(f"{question} [y/N] ")
        self.out.flush()
        typed = b""
        while not typed.endswith(b"\n") and (data := os.read(self._fd, 1024)):
            typed += data
        return typed.strip().lower() in (b"y", b"yes")


def write_field(terminal: Terminal, head: str, text: str, style: str | None = None) -> None:
    """Write a field in one line, unless it is empty."""
    if text:
        terminal.write_line(f"  {head}: {output.paint(visible(text), style, terminal.out) if style else visible(text)}")


def write_lines(terminal: Terminal, head: str, lines: list[str], style: str | None = None) -> None:
    """Write a field of several lines, unless there are none."""
    if lines:
        terminal.write_line(f"  {head}:")
        for line in lines:
            terminal.write_line(f"    {visible(line)}", style)
