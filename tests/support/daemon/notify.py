"""A command for `notify.command` that passes its input to the test."""

import json
import os
import select
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

SECONDS = 150.0


@dataclass(frozen=True)
class Page:
    """One run of the command: the name of the workspace, the reasons, its path, and the JSON on stdin."""

    name: str
    reasons: tuple[str, ...]
    path: str
    given: dict[str, Any]


class Pager:
    """The command. Runs may overlap: each writes its own file, and then its name to a pipe that the test reads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "pages"
        self._folder.mkdir()
        self._pipe = self._folder / "pipe"
        os.mkfifo(self._pipe)
        self._handle = os.open(self._pipe, os.O_RDWR | os.O_NONBLOCK)
        self._unread = b""
        told = '"$ROOKERY_WORKSPACE_NAME" "$ROOKERY_ATTENTION" "$ROOKERY_WORKSPACE_PATH"'
        made = f"page=$(mktemp {self._folder}/XXXXXXXX)"
        self.command = f"{made}; {{ printf '%s\\n' {told}; cat; }} > $page; echo $page > {self._pipe}"
        self.seen: list[Page] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def next(self) -> Page:
        """Wait for the next run of the command."""
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._handle], [], [], SECONDS)
            assert ready, f"the command was not run again; so far: {[(one.name, one.reasons) for one in self.seen]}"
            self._unread += os.read(self._handle, 65_536)
        line, _, self._unread = self._unread.partition(b"\n")
        name, reasons, path, given = Path(os.fsdecode(line)).read_text().split("\n", 3)
        self.seen.append(Page(name, tuple(reasons.split(",")), path, json.loads(given)))
        return self.seen[-1]

    def until(self, wanted: Callable[[Page], object]) -> Page:
        """Wait for a run that meets the condition, or return an earlier one."""
        for page in self.seen:
            if wanted(page):
                return page
        while not wanted(page := self.next()):
            pass
        return page
