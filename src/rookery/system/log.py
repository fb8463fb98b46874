"""Logging: readable on a terminal, JSON lines in a rotated file, secrets struck out by value in both.

Every logger is named `rookery.<part>`; those about MCP are `rookery.mcp.<part>`, so that they can be told apart.
"""

import contextlib
import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, cast

from rookery.system.clock import iso
from rookery.system.visible import visible

LEVELS = ("debug", "info", "warning", "error")
_COLOURS = {logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31", logging.DEBUG: "2"}
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class Redactor:
    """Knows the secrets of this process and strikes them out of any text."""

    def __init__(self) -> None:
        self._secrets: list[str] = []
        self._lock = threading.Lock()

    def add(self, secret: str) -> None:
        """Short values are left alone: striking them out would garble the log and hide nothing."""
        if len(secret) >= 8:
            with self._lock:
                # Longest first, so that a secret which contains another one is struck out whole.
                self._secrets = sorted({*self._secrets, secret}, key=len, reverse=True)

    def forget(self, secret: str) -> None:
        """One that is worth nothing any more: there may be very many of them in time."""
        with self._lock:
            self._secrets = [one for one in self._secrets if one != secret]

    def clean(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, "[secret]")
        return text


REDACTOR = Redactor()


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and what was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(as_dict(record), ensure_ascii=False)


class HumanFormatter(logging.Formatter):
    def __init__(self, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        found = as_dict(record)
        text = human_line(found["time"], found["level"], found["logger"], found["message"], found.get("exception"))
        if self._colour and (code := _COLOURS.get(record.levelno)):
            text = f"\x1b[{code}m{text}\x1b[0m"
        return text


def human_line(time: str, level: str, name: str, message: str, exception: str | None) -> str:
    """What strangers said may stand anywhere in it, and neither moves the cursor nor looks like a line of its own."""
    line = visible(f"{time[11:19]} {level:<7} {name.removeprefix('rookery.')}: {message}")
    return "\n".join([line, *(f"    {visible(one)}" for one in exception.split("\n"))]) if exception else line


def as_dict(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = {
        "time": iso(record.created),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    if record.exc_info and record.exc_info[0] is not None:
        found["exception"] = logging.Formatter().formatException(record.exc_info)
    found.update({key: value for key, value in vars(record).items() if key not in _STANDARD})
    # Before any encoding: escapes would hide a secret from the comparison.
    return {key: _plain(value) for key, value in found.items()}


def _plain(value: Any) -> Any:
    """A value as JSON has it, without secrets."""
    if isinstance(value, str):
        return REDACTOR.clean(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast(list[Any], value)]
    return REDACTOR.clean(repr(value))


class PersistentFileHandler(RotatingFileHandler):
    """Goes on when the disk is full, and makes the file anew when somebody removed or renamed it."""

    def __init__(self, path: Path, max_bytes: int, files: int) -> None:
        self.lost = 0
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().__init__(path, maxBytes=max_bytes, backupCount=files - 1, encoding="utf-8", errors="backslashreplace")

    def _open(self) -> Any:
        os.close(os.open(self.baseFilename, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return super()._open()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._reopen_if_moved()
        except OSError:
            self.lost += 1
            return
        super().emit(record)

    def _reopen_if_moved(self) -> None:
        if self.stream:
            try:
                there = Path(self.baseFilename).stat()
                here = os.fstat(self.stream.fileno())
                if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
                    return
            except FileNotFoundError:
                pass
            # What a full disk kept it from writing is lost already.
            with contextlib.suppress(OSError):
                self.stream.close()
        Path(self.baseFilename).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.stream = self._open()

    def handleError(self, record: logging.LogRecord) -> None:
        """A log that cannot be written must not stop what it tells about."""
        self.lost += 1


class QuietStreamHandler(logging.StreamHandler[Any]):
    """For a terminal that may be closed at any time."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Nobody is left to tell."""


class TapHandler(logging.Handler):
    """Hands each record on, for those who follow the log live."""

    def __init__(self, give: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._give = give

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._give(as_dict(record))
        except Exception:
            # Whoever logs must not suffer for whoever follows the log.
            self.handleError(record)


def set_up(file: Path, *, level: str, max_bytes: int, files: int, terminal: bool) -> PersistentFileHandler:
    """Configure the root logger of this process, once."""
    handler = PersistentFileHandler(file, max_bytes, files)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    if terminal:
        stream = QuietStreamHandler(sys.stderr)
        stream.setFormatter(HumanFormatter(colour=sys.stderr.isatty() and "NO_COLOR" not in os.environ))
        root.addHandler(stream)
    logging.captureWarnings(True)
    set_level(level)
    return handler


def set_level(level: str) -> None:
    logging.getLogger().setLevel(level.upper())
