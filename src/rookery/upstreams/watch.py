"""Keeps a configuration current while its files change."""

import asyncio
from collections.abc import Callable, Set
from pathlib import Path

from rookery.system.filewatch import file_watch
from rookery.upstreams.configuration import Configuration

# Editors write in several steps, and one that takes them one by one reads half a file.
QUIET = 0.1
LONGEST = 1.0

Changed = Callable[[Path | None], None]


async def watch(configuration: Configuration, changed: Changed, *, quiet: float = QUIET) -> None:
    """Until cancelled: read again what changes, and name each directory for which something else is found then.

    Directories that come into use later are watched from then on.
    """
    wake, touched, known = asyncio.Event(), set[Path](), set[Path]()

    def told(files: Set[Path]) -> None:
        touched.update(files)
        wake.set()

    files = file_watch(told)
    configuration.grown = wake.set
    try:
        while True:
            wanted = configuration.files()
            files.watch(wanted)
            # What is new here may have changed after it was read and before it was watched.
            stale = touched | (wanted - known)
            touched.clear()
            known = wanted
            for directory in configuration.refresh(stale) if stale else []:
                changed(directory)
            if configuration.files() == wanted:
                await _wait(wake, quiet)
    finally:
        files.close()
        configuration.grown = lambda: None


async def _wait(wake: asyncio.Event, quiet: float) -> None:
    """Until something happens, and then until nothing does for a while."""
    await wake.wait()
    try:
        async with asyncio.timeout(LONGEST):
            while True:
                wake.clear()
                async with asyncio.timeout(quiet):
                    await wake.wait()
    except TimeoutError:
        wake.clear()
