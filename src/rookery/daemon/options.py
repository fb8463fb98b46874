"""What the daemon was started with, and how it tells whoever started it how that goes."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Options:
    """What the command line gave."""

    project: Path | None = None
    project_required: bool = False
    flags: Sequence[tuple[str, str]] = ()
    ready_fd: int | None = None
    foreground: bool = False


class Starter:
    """Tells whoever started the daemon how that goes: one JSON object a line, on a pipe that closes at the end."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def tell(self, **what: Any) -> None:
        if self._fd is None:
            return
        try:
            os.write(self._fd, json.dumps(what).encode() + b"\n")
        except OSError:
            self._fd = None

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
