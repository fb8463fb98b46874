"""Wait for a message, a toast, the end of a turn, a tool run or a file of a session.

A match that exists already counts; after that, events are followed until the time limit.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from rookery.sessions.follow import ChangeFollower
from rookery.sessions.index import SessionIndex, SessionRef
from rookery.sessions.patterns import PatternCompiler
from rookery.sessions.records import Progress, SessionMessage, Toast, ToolRun, WaitResult
from rookery.sessions.turns import describe_activity
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_beneath
from rookery.system.fs.watch import watch_files

# The largest file in which a pattern is searched.
_MAX_FILE_BYTES = 1_000_000
_ABSENT_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_NOT_ATTRIBUTED = "OpenCode does not report which session of the workspace this toast is for"
_FINAL_STATUSES = ("completed", "error", "aborted")


class ChangedMessages:
    """Tracks which messages of a session were checked, so that only changed ones are checked again."""

    def __init__(self) -> None:
        self._transcript: object = None
        self._version = -1

    async def changed(self, ref: SessionRef) -> list[SessionMessage]:
        """Return the messages that changed since the last call, the newest first."""
        transcript = await ref.workspace_sessions.transcripts.transcript(ref.session)
        if transcript is not self._transcript:
            self._transcript = transcript
            self._version = -1
        elif transcript.version == self._version:
            return []
        changed = list(transcript.changed_since(self._version, running=ref.is_running))
        self._version = transcript.version
        return changed

    def describe_last(self, ref: SessionRef) -> str:
        """Describe the last message."""
        return ref.workspace_sessions.transcripts.describe_last_message(ref.id) or "no message"


def format_toast(toast: Toast) -> str:
    """Return the text of a toast in which a pattern is searched."""
    return f"{toast.title}\n{toast.message}" if toast.title else toast.message


def format_tool_run(run: ToolRun) -> str:
    """Return the input, output and error of a tool run, in which a pattern is searched."""
    return "\n".join([msgspec.json.encode(run.input).decode(), run.output or "", run.error or ""])


@dataclass(frozen=True)
class FileState:
    """The state of a file.

    `text` is None if it is not a regular file, or is too large to be searched; `reason` is the reason.
    """

    exists: bool
    text: str | None = None
    reason: str = "it does not exist"


class WatchedFile:
    """A file that a caller waits for. `path` is relative to `folder`, or an absolute path inside it."""

    def __init__(self, folder: Path, path: str) -> None:
        self._folder = folder.resolve()
        self.path = _require_inside(self._folder, path)

    @contextmanager
    def watch(self, changed: asyncio.Event) -> Generator[None]:
        """Set `changed` whenever the file may have changed, until the end of the block."""
        watch = watch_files(lambda _: changed.set())
        watch.watch({self._folder / self.path})
        try:
            yield
        finally:
            watch.close()

    async def read_state(self) -> FileState:
        """Return the current state of the file."""
        return await asyncio.to_thread(self._read_state)

    def _read_state(self) -> FileState:
        try:
            data = read_beneath(self._folder, self.path, _MAX_FILE_BYTES)
        except OSError as error:
            if error.errno in _ABSENT_ERRNOS:
                return FileState(False)
            # A symbolic link may point outside the folder, so it counts as absent.
            return FileState(error.errno != errno.ELOOP, reason=error.strerror or str(error))
        return FileState(True, data.decode("utf-8", "replace"))


def _require_inside(folder: Path, path: str) -> PurePosixPath:
    """Return the path relative to the folder. Raise an error if it is not inside."""
    file_path = PurePosixPath(path)
    try:
        relative = file_path.relative_to(folder) if file_path.is_absolute() else file_path
    except ValueError:
        relative = PurePosixPath("..")
    if not path or "\0" in path or ".." in relative.parts or not relative.parts:
        message = f"{path!r} is not a file in the session's folder"
        raise RookeryError("path-outside-root", message, "give a path relative to that folder, without `..`")
    return relative


class Waits:
    """Waits for what sessions do. A result without `found` says what was seen last."""

    def __init__(self, index: SessionIndex, follower: ChangeFollower, clock: Clock) -> None:
        self._index = index
        self._follower = follower
        self._clock = clock
        self.patterns = PatternCompiler(clock)

    async def wait_for_message(
        self,
        id_: str,
        pattern: str,
        timeout: float = 30.0,
        *,
        role: str | None = None,
        since: float | None = None,
        scope: Path | None = None,
        progress: Progress | None = None,
    ) -> WaitResult:
        """Wait for a message that matches, also one that is still being written; return the newest."""
        ref = await self._index.find(id_, scope)
        compiled = self.patterns.compile(pattern)
        changed_messages = ChangedMessages()

        async def look() -> WaitResult | None:
            for message in await changed_messages.changed(ref):
                if role not in (None, message.role) or (since is not None and message.time <= since):
                    continue
                if (match := await compiled.search(message.content)) is not None:
                    return WaitResult(found=True, match=match, message=message)
            return None

        return await self.wait_until(ref, look, timeout, progress, lambda: changed_messages.describe_last(ref))

    async def wait_for_toast(
        self,
        id_: str,
        pattern: str,
        timeout: float = 10.0,
        *,
        since: float | None = None,
        scope: Path | None = None,
        progress: Progress | None = None,
    ) -> WaitResult:
        """Wait for a toast that is visible now, was shown since the last message of a person, or is shown later.

        If no person has written a message, toasts since the start of the session count. Toasts of other sessions do
        not.
        """
        ref = await self._index.find(id_, scope)
        compiled = self.patterns.compile(pattern)
        toasts = ref.workspace_sessions.toasts
        if since is not None:
            # If the caller names a moment, only toasts after it count.
            candidates = toasts.since(since, None, ref.id)
        else:
            session = ref.session
            moment = max(await ref.workspace_sessions.transcripts.prompted_at(session), session.time.created)
            candidates = toasts.since(moment, self._clock.wall() * 1000, ref.id)
        count = toasts.count

        async def look() -> WaitResult | None:
            nonlocal count
            candidates.extend(toasts.added_since(count, ref.id))
            count = toasts.count
            while candidates:
                toast = candidates.pop()
                if (match := await compiled.search(format_toast(toast))) is not None:
                    note = None if toast.attributed else _NOT_ATTRIBUTED
                    return WaitResult(found=True, match=match, toast=toast, note=note)
            return None

        def describe_last() -> str:
            last = toasts.last(ref.id)
            return f"toast: {format_toast(last)}" if last is not None else "no toast"

        return await self.wait_until(ref, look, timeout, progress, describe_last, messages=False)

    async def wait_for_idle(
        self, id_: str, timeout: float = 30.0, *, scope: Path | None = None, progress: Progress | None = None
    ) -> WaitResult:
        """Wait until the last turn is over, however it ended.

        The messages are not read: `session.message_count` is None unless they were counted before.
        """
        ref = await self._index.find(id_, scope)

        async def look() -> WaitResult | None:
            return None if ref.is_running else WaitResult(found=True, session=ref.cached_info())

        return await self.wait_until(ref, look, timeout, progress, lambda: describe_activity(ref), messages=False)

    async def wait_for_tool(
        self,
        id_: str,
        tool: str | None = None,
        timeout: float = 30.0,
        *,
        pattern: str | None = None,
        since: float | None = None,
        scope: Path | None = None,
        progress: Progress | None = None,
    ) -> WaitResult:
        """Wait for a run of this tool, or of any, that has ended.

        `pattern` is searched in its input, output and error.
        """
        ref = await self._index.find(id_, scope)
        compiled = self.patterns.compile(pattern) if pattern is not None else None
        changed_messages = ChangedMessages()

        async def look() -> WaitResult | None:
            for message in await changed_messages.changed(ref):
                for run in reversed(message.parts):
                    if (
                        run.status in _FINAL_STATUSES
                        and tool in (None, run.tool)
                        and (since is None or (run.end or 0) > since)
                    ):
                        match = await compiled.search(format_tool_run(run)) if compiled is not None else None
                        if compiled is None or match is not None:
                            return WaitResult(found=True, match=match, tool=run)
            return None

        return await self.wait_until(ref, look, timeout, progress, lambda: changed_messages.describe_last(ref))

    async def wait_for_file(
        self,
        id_: str,
        path: str,
        timeout: float = 30.0,
        *,
        pattern: str | None = None,
        scope: Path | None = None,
        progress: Progress | None = None,
    ) -> WaitResult:
        """Wait until a file of the session's folder exists and, with `pattern`, matches."""
        ref = await self._index.find(id_, scope)
        compiled = self.patterns.compile(pattern) if pattern is not None else None
        file = WatchedFile(Path(ref.session.directory), path)
        file_changed = asyncio.Event()
        last_seen = ["nothing yet"]

        async def look() -> WaitResult | None:
            state = await file.read_state()
            last_seen[0] = f"{file.path}: {'it exists' if state.exists else state.reason}"
            if not state.exists or compiled is None:
                return WaitResult(found=True, file=str(file.path)) if state.exists else None
            if state.text is None:
                raise RookeryError(
                    "invalid-input", f"{file.path} cannot be searched: {state.reason}", "leave out `pattern`"
                )
            match = await compiled.search(state.text)
            return WaitResult(found=True, file=str(file.path), match=match) if match is not None else None

        with file.watch(file_changed):
            return await self.wait_until(
                ref, look, timeout, progress, lambda: last_seen[0], file_changed, messages=False
            )

    async def wait_until(
        self,
        ref: SessionRef,
        check: Callable[[], Awaitable[WaitResult | None]],
        seconds: float,
        progress: Progress | None,
        describe_last: Callable[[], str],
        changed: asyncio.Event | None = None,
        *,
        messages: bool = True,
    ) -> WaitResult:
        """Wait until `check` returns a result, or the session is closed.

        With `messages`, read its messages and keep them meanwhile.
        """

        async def look_while_open() -> WaitResult | None:
            if ref.workspace_sessions.session(ref.id) is None:
                return WaitResult(found=False, closed=True, note="the session was closed")
            return await check()

        transcript_hold = ref.workspace_sessions.transcripts.pinned(ref.session) if messages else nullcontext()
        async with ref.workspace_sessions.use_agent(), transcript_hold:
            result = await self._follower.wait_until(
                ref, look_while_open, seconds, describe_activity=describe_last, progress=progress, changed=changed
            )
        if result is None:
            result = WaitResult(
                found=False, note=f"timed out after {seconds:g} s; the session: {describe_activity(ref)}"
            )
        return msgspec.structs.replace(result, session_id=ref.id, seen=None if result.found else describe_last())
