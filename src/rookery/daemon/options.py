"""The options of the daemon, and the pipe on which it reports its start."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Options:
    """Options from the command line."""

    project: Path | None = None
    project_required: bool = False
    flags: Sequence[tuple[str, str]] = ()
    ready_fd: int | None = None
    foreground: bool = False


class StartReporter:
    """Reports the progress of the start to the starting process: one JSON object a line, on a pipe.

    The pipe is closed when the daemon is ready, or when its process ends.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def send(self, **fields: Any) -> None:
        if self._fd is None:
            return
        try:
            os.write(self._fd, json.dumps(fields).encode() + b"\n")
        except OSError:
            self._fd = None

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
