"""Waits of a session: what is there already counts first, then events are followed until time runs out."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from rookery.sessions.finding import Finding, Found
from rookery.sessions.following import Following
from rookery.sessions.looking import Looked, said_by, text_of
from rookery.sessions.patterns import Patterns
from rookery.sessions.records import Progress, Waited
from rookery.sessions.turns import doing
from rookery.sessions.watched_files import WatchedFile
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError

_ENDED = ("completed", "error", "aborted")


class Waits:
    """Each answers with `found`, or past its time limit with what was `seen` last."""

    def __init__(self, finding: Finding, following: Following, clock: Clock) -> None:
        self._finding, self._following, self._clock = finding, following, clock
        self._patterns = Patterns(clock)

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
    ) -> Waited:
        """The newest message that fits, also one that is still being written."""
        found, wanted = await self._finding.find(id_, scope), self._patterns.compile(pattern)
        looked = Looked()

        async def look() -> Waited | None:
            for message in await looked.changed(found):
                if role not in (None, message.role) or (since is not None and message.time <= since):
                    continue
                if (match := await wanted.search(message.content)) is not None:
                    return Waited(found=True, match=match, message=message)
            return None

        return await self._waited(found, look, timeout, progress, lambda: looked.seen(found))

    async def wait_for_toast(
        self,
        id_: str,
        pattern: str,
        timeout: float = 10.0,
        *,
        since: float | None = None,
        scope: Path | None = None,
        progress: Progress | None = None,
    ) -> Waited:
        """Of the session's workspace: on show now, shown since the last message of a person, or still to come."""
        found, wanted = await self._finding.find(id_, scope), self._patterns.compile(pattern)
        toasts = found.room.toasts
        moment = since if since is not None else await self._last_of_person(found)
        # Of a moment that was named only what came after it counts.
        fresh = toasts.since(moment, None if since is not None else self._clock.wall() * 1000)
        count = toasts.count

        async def look() -> Waited | None:
            nonlocal count
            fresh.extend(toasts.added(count))
            count = toasts.count
            while fresh:
                toast = fresh.pop()
                if (match := await wanted.search(text_of(toast))) is not None:
                    return Waited(found=True, match=match, toast=toast)
            return None

        def seen() -> str:
            return f"toast: {text_of(toasts.last)}" if toasts.last is not None else "no toast"

        return await self._waited(found, look, timeout, progress, seen)

    async def wait_for_idle(
        self, id_: str, timeout: float = 30.0, *, scope: Path | None = None, progress: Progress | None = None
    ) -> Waited:
        """Whether its last turn is over, however it ended."""
        found = await self._finding.find(id_, scope)

        async def look() -> Waited | None:
            return None if found.running else Waited(found=True, session=await found.info())

        return await self._waited(found, look, timeout, progress, lambda: doing(found))

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
    ) -> Waited:
        """A run that has ended, of this tool or of any; `pattern` is searched for in its input, output and error."""
        found = await self._finding.find(id_, scope)
        wanted = self._patterns.compile(pattern) if pattern is not None else None
        looked = Looked()

        async def look() -> Waited | None:
            for message in await looked.changed(found):
                for run in reversed(message.parts):
                    if run.status in _ENDED and tool in (None, run.tool) and (since is None or (run.end or 0) > since):
                        match = await wanted.search(said_by(run)) if wanted is not None else None
                        if wanted is None or match is not None:
                            return Waited(found=True, match=match, tool=run)
            return None

        return await self._waited(found, look, timeout, progress, lambda: looked.seen(found))

    async def wait_for_file(
        self,
        id_: str,
        path: str,
        timeout: float = 30.0,
        *,
        pattern: str | None = None,
        scope: Path | None = None,
        progress: Progress | None = None,
    ) -> Waited:
        """A file of the session's folder that is there and, if wanted, fits the pattern."""
        found = await self._finding.find(id_, scope)
        wanted = self._patterns.compile(pattern) if pattern is not None else None
        file = WatchedFile(Path(found.session.directory), path)
        news, seen = asyncio.Event(), ["nothing yet"]

        async def look() -> Waited | None:
            now = await file.look()
            seen[0] = f"{file.path}: {'it is there' if now.there else now.why}"
            if not now.there or wanted is None:
                return Waited(found=True, file=str(file.path)) if now.there else None
            if now.text is None:
                raise RookeryError("invalid-input", f"{file.path} cannot be searched: {now.why}", "leave out `pattern`")
            match = await wanted.search(now.text)
            return Waited(found=True, file=str(file.path), match=match) if match is not None else None

        with file.watched(news):
            return await self._waited(found, look, timeout, progress, lambda: seen[0], news)

    # ---- what they share

    async def _waited(
        self,
        found: Found,
        look: Callable[[], Awaitable[Waited | None]],
        seconds: float,
        progress: Progress | None,
        seen: Callable[[], str],
        news: asyncio.Event | None = None,
    ) -> Waited:
        async def look_while_open() -> Waited | None:
            if found.room.session(found.id) is None:
                return Waited(found=False, closed=True, note="the session was closed")
            return await look()

        async with found.room.used(), found.room.ledger.held(found.session):
            answer = await self._following.until(
                found, look_while_open, seconds, doing=seen, progress=progress, news=news
            )
        if answer is None:
            answer = Waited(found=False, note=f"not within {seconds:g} s; the session: {doing(found)}")
        return msgspec.structs.replace(answer, session_id=found.id, seen=None if answer.found else seen())

    async def _last_of_person(self, found: Found) -> float:
        book = await found.room.ledger.book(found.session)
        times = [one.time.created for one in book.infos() if one.role == "user"]
        return times[-1] if times else self._clock.wall() * 1000
