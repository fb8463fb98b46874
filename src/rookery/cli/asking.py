"""Asks a person whether to approve something: shows all of it on the terminal itself, and listens to nothing else."""

import os
from types import TracebackType
from typing import Any, Self

from rookery.cli import output
from rookery.cli.failure import Failure
from rookery.cli.visible import visible

# What the content of a kind is.
_CONTENT = {"setup": "command, run in each new workspace", "git-config": "programs that git would run"}
_CONTENT["justfile"] = "tasks that tools may run here, with all that the justfile imports"
_CONTENT["opencode-config"] = "OpenCode's config here; with it come the plugins, tools and commands of the files above"

_CONTENT["plugin"] = "the code of a plugin, which runs in Rookery itself and may do all that you may"


class Terminal:
    """The controlling terminal, whatever stdin and stdout were turned into."""

    def __enter__(self) -> Self:
        try:
            self._handle = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            raise Failure(
                "needs-approval", "to approve something takes a person at a terminal", "run it in a terminal"
            ) from None
        self.out = os.fdopen(os.dup(self._handle), "w", encoding="utf-8", errors="backslashreplace")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.out.close()
        os.close(self._handle)

    def say(self, text: str, style: str | None = None) -> None:
        self.out.write((output.paint(text, style, self.out) if style else text) + "\n")

    def ask(self, question: str) -> bool:
        """Only y or yes is a yes; what was typed before the question stood there does not count."""
        import termios

        self.out.flush()
        termios.tcflush(self._handle, termios.TCIFLUSH)
        self.out.write(f"{question} [y/N] ")
        self.out.flush()
        typed = b""
        while not typed.endswith(b"\n") and (data := os.read(self._handle, 1024)):
            typed += data
        return typed.strip().lower() in (b"y", b"yes")


def approved(terminal: Terminal, one: dict[str, Any], count: str) -> bool:
    """Show one thing that waits, and ask. What it would do stands last, so that nothing can push it off the screen."""
    state = "has changed since you approved it" if one["state"] == "changed" else "is new"
    terminal.say(f"\n{visible(one['name'])} ({visible(one['kind'])}, {count}) {state}", "bold")
    _line(terminal, "found in", one["source"])
    _line(terminal, "project", one["place"])
    parts = one.get("parts")
    if parts is not None:
        _lines(terminal, "settings", [f"{key}: {_json(value)}" for key, value in parts["other"].items()])
        _lines(terminal, "headers", [f"{key}: {_text(value)}" for key, value in parts["headers"].items()])
        _lines(terminal, "variables", [f"{key}={_text(value)}" for key, value in parts["environment"].items()])
    _line(terminal, "runs in", one["folder"])
    _lines(terminal, "files, as they are now", [f"{path} sha256 {digest}" for path, digest in one["files"].items()])
    if one["last"] is not None:
        _lines(terminal, "what changed since you approved it", _difference(one["last"], one["shown"]))
    if parts is not None:
        import shlex

        _line(terminal, "command", shlex.join(parts["command"]), "bold")
        _line(terminal, "address", parts["url"], "bold")
    else:
        _lines(terminal, _CONTENT.get(one["kind"], "content"), one["content"].split("\n"), "bold")
    for risk in one.get("risks", []):
        terminal.say(f"  {risk['level']}: {visible(risk['text'])}", "red" if risk["level"] == "warning" else "yellow")
    if one["problem"]:
        terminal.say(f"  it cannot be approved: {visible(one['problem'])}", "red")
        return False
    return terminal.ask(f"Approve {visible(one['name'])}?")


def _line(terminal: Terminal, head: str, text: str, style: str | None = None) -> None:
    if text:
        terminal.say(f"  {head}: {output.paint(visible(text), style, terminal.out) if style else visible(text)}")


def _lines(terminal: Terminal, head: str, lines: list[str], style: str | None = None) -> None:
    if lines:
        terminal.say(f"  {head}:")
        for line in lines:
            terminal.say(f"    {visible(line)}", style)


def _difference(before: str, now: str) -> list[str]:
    import difflib

    lines = difflib.unified_diff(before.split("\n"), now.split("\n"), "approved", "now", lineterm="", n=1)
    return list(lines)


def _text(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
