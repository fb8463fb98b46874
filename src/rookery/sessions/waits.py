"""Waits of a session: what is there already counts first, then events are followed until time runs out."""

from pathlib import Path

from rookery.sessions.records import Progress, Waited


class Waits:
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
        raise NotImplementedError

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
        raise NotImplementedError

    async def wait_for_idle(
        self, id_: str, timeout: float = 30.0, *, scope: Path | None = None, progress: Progress | None = None
    ) -> Waited:
        raise NotImplementedError

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
        raise NotImplementedError

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
        raise NotImplementedError
