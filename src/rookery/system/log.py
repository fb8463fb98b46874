"""Logging: readable on a terminal, JSON lines in a rotated file, with secret values redacted in both.

Loggers are named `rookery.<part>`; those about MCP are named `rookery.mcp.<part>`, so that they can be told apart.
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
from rookery.system.text import escape_invisible

_ROOT = "rookery"
LEVELS = ("debug", "info", "warning", "error")
_COLOURS = {logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31", logging.DEBUG: "2"}
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class Redactor:
    """Holds the secrets of this process and removes them from any text."""

    def __init__(self) -> None:
        self._secrets: list[str] = []
        self._lock = threading.Lock()

    def add(self, secret: str) -> None:
        """Add a secret. Values shorter than 8 characters are ignored: redacting them would garble the log."""
        if len(secret) >= 8:
            with self._lock:
                # Longest first, so that a secret that contains another one is redacted as a whole.
                self._secrets = sorted({*self._secrets, secret}, key=len, reverse=True)

    def remove(self, secret: str) -> None:
        """Remove a secret that is no longer valid, so that the list does not grow without limit."""
        with self._lock:
            self._secrets = [kept for kept in self._secrets if kept != secret]

    def clean(self, text: str) -> str:
        """Return the text with each secret replaced by `[secret]`."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, "[secret]")
        return text


REDACTOR = Redactor()


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the fields given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(as_dict(record), ensure_ascii=False)


class HumanFormatter(logging.Formatter):
    """One line per record, in colour if wanted; the lines of an exception follow, indented."""

    def __init__(self, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        fields = as_dict(record)
        text = human_line(fields["time"], fields["level"], fields["logger"], fields["message"], fields.get("exception"))
        if self._colour and (code := _COLOURS.get(record.levelno)):
            text = f"\x1b[{code}m{text}\x1b[0m"
        return text


def is_below(logger: str, name: str) -> bool:
    """Return whether a logger is `name` or below it. `name` may leave out the leading `rookery.`, as output does."""
    full_name = name if name == _ROOT or name.startswith(f"{_ROOT}.") else f"{_ROOT}.{name}"
    return logger == full_name or logger.startswith(f"{full_name}.")


def human_line(time: str, level: str, name: str, message: str, exception: str | None) -> str:
    """Format a record as text. Untrusted text in it can neither move the cursor nor pass for a line of its own."""
    line = escape_invisible(f"{time[11:19]} {level:<7} {name.removeprefix('rookery.')}: {message}")
    return (
        "\n".join([line, *(f"    {escape_invisible(part)}" for part in exception.split("\n"))]) if exception else line
    )


def as_dict(record: logging.LogRecord) -> dict[str, Any]:
    """Return a record as the fields of a JSON object, without secrets."""
    fields: dict[str, Any] = {
        "time": iso(record.created),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    if record.exc_info and record.exc_info[0] is not None:
        fields["exception"] = logging.Formatter().formatException(record.exc_info)
    fields.update({key: value for key, value in vars(record).items() if key not in _STANDARD_FIELDS})
    # Redact before encoding: escapes would hide a secret from the comparison.
    return {key: _to_json_value(value) for key, value in fields.items()}


def _to_json_value(value: Any) -> Any:
    """Return a value as JSON represents it, without secrets."""
    if isinstance(value, str):
        return REDACTOR.clean(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(key): _to_json_value(item) for key, item in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(item) for item in cast(list[Any], value)]
    return REDACTOR.clean(repr(value))


class PersistentFileHandler(RotatingFileHandler):
    """Continues when the disk is full, and creates the file again if it was removed or renamed."""

    def __init__(self, path: Path, max_bytes: int, files: int) -> None:
        self.lost_records = 0
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().__init__(path, maxBytes=max_bytes, backupCount=files - 1, encoding="utf-8", errors="backslashreplace")

    def _open(self) -> Any:
        # A named pipe without a reader must not block us.
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK
        os.close(os.open(self.baseFilename, flags, 0o600))
        return super()._open()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._reopen_if_moved()
        except OSError:
            self.lost_records += 1
            return
        super().emit(record)

    def _reopen_if_moved(self) -> None:
        if self.stream:
            try:
                on_disk = Path(self.baseFilename).stat()
                opened = os.fstat(self.stream.fileno())
                if (on_disk.st_dev, on_disk.st_ino) == (opened.st_dev, opened.st_ino):
                    return
            except FileNotFoundError:
                pass
            # Data that a full disk kept from being written is lost already.
            with contextlib.suppress(OSError):
                self.stream.close()
        # Without `parents`: the log does not create a deleted state folder again.
        Path(self.baseFilename).parent.mkdir(mode=0o700, exist_ok=True)
        self.stream = self._open()

    def handleError(self, record: logging.LogRecord) -> None:
        """Count the record as lost. A log that cannot be written must not stop the program."""
        self.lost_records += 1


class QuietStreamHandler(logging.StreamHandler[Any]):
    """Writes to a terminal that may be closed at any time."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore the error: there is nowhere left to report it."""


class CallbackHandler(logging.Handler):
    """Passes each record to a function, for clients that follow the log live."""

    def __init__(self, callback: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._callback = callback

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._callback(as_dict(record))
        except Exception:
            # An error of a follower must not reach the code that logs.
            self.handleError(record)


def set_up(file: Path, *, level: str, max_bytes: int, files: int, terminal: bool) -> PersistentFileHandler:
    """Configure the root logger of this process. Call it once."""
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
    """Set the level of the root logger: one of `LEVELS`."""
    logging.getLogger().setLevel(level.upper())
