"""Wait until a condition on a session holds: check it after every change, and report progress."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rookery.sessions.index import ChangeNotifier, SessionRef
from rookery.sessions.records import Progress, SessionChange
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError

MAX_WAIT_SECONDS = 86_400.0
# Limits of progress reports: the least time between two reports, and the longest time without one.
_MIN_PROGRESS_SECONDS = 1.0
_MAX_SILENT_SECONDS = 5.0
# The first check gets at least this long: a match that exists already counts even if the caller does not wait.
_FIRST_CHECK_SECONDS = 10.0

T = TypeVar("T")


def require_timeout(seconds: float) -> None:
    """Raise an error for a time limit below 0 s or above `MAX_WAIT_SECONDS`."""
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        message = f"a time limit of {seconds:g} s is not supported"
        raise RookeryError("invalid-input", message, f"give one from 0 to {MAX_WAIT_SECONDS:g} s")


def require_limit(limit: int | None) -> None:
    """Raise an error for a limit below 1."""
    if limit is not None and limit < 1:
        raise RookeryError("invalid-input", f"a limit of {limit} shows nothing", "give 1 or more")


class ChangeFollower:
    """Checks conditions whenever a session changes."""

    def __init__(self, changes: ChangeNotifier, clock: Clock) -> None:
        self._changes = changes
        self._clock = clock

    async def wait_until(
        self,
        ref: SessionRef,
        check: Callable[[], Awaitable[T | None]],
        seconds: float,
        *,
        describe_activity: Callable[[], str],
        progress: Progress | None = None,
        changed: asyncio.Event | None = None,
    ) -> T | None:
        """Return the first result of `check` that is not None, or None after the time limit.

        `check` is called at once, after every change of the session, and whenever the caller sets `changed`.
        `describe_activity` describes the activity for progress reports.
        """
        require_timeout(seconds)
        changed = changed or asyncio.Event()
        stop = self._changes.listen(lambda changes: changed.set() if _is_affected(ref, changes) else None)
        reporter = _ProgressReporter(progress, describe_activity, self._clock)
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout(max(seconds, _FIRST_CHECK_SECONDS)) as limit:
                while True:
                    changed.clear()
                    if (result := await check()) is not None:
                        return result
                    limit.reschedule(deadline)
                    await reporter.wait(changed)
        except TimeoutError:
            return None
        finally:
            stop()


class _ProgressReporter:
    """Reports progress while a caller waits."""

    def __init__(self, progress: Progress | None, describe_activity: Callable[[], str], clock: Clock) -> None:
        self._progress = progress
        self._describe_activity = describe_activity
        self._clock = clock
        self._reported_at = clock.monotonic()

    async def wait(self, changed: asyncio.Event) -> None:
        """Wait until `changed` is set, and report progress meanwhile."""
        if self._progress is None:
            await changed.wait()
            return
        while not changed.is_set():
            remaining = self._reported_at + _MAX_SILENT_SECONDS - self._clock.monotonic()
            try:
                async with asyncio.timeout(max(remaining, 0)):
                    await changed.wait()
            except TimeoutError:
                await self._report(self._progress)
        if self._clock.monotonic() - self._reported_at >= _MIN_PROGRESS_SECONDS:
            await self._report(self._progress)

    async def _report(self, progress: Progress) -> None:
        self._reported_at = self._clock.monotonic()
        await progress(self._describe_activity())


def _is_affected(ref: SessionRef, changes: frozenset[SessionChange]) -> bool:
    """Return whether one of the changes concerns a session or its whole workspace."""
    return any(
        change.workspace == ref.workspace_sessions.path and change.session in (None, ref.id) for change in changes
    )
