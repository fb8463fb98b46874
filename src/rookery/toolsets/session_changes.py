"""Who watches the resources of sessions is told when they change."""

from pathlib import Path
from typing import TYPE_CHECKING

from rookery.sessions.records import Change
from rookery.sessions.service import Sessions
from rookery.toolsets.toolset import Toolset
from rookery.workspaces.record import as_text

if TYPE_CHECKING:
    from collections.abc import Callable

_OURS = ("session://", "messages://")


class SessionChanges:
    """Tells clients of changes of the resources that they watch, and listens only while there are any."""

    def __init__(self, sessions: Sessions, toolset: Toolset, scope: Path | None) -> None:
        self._sessions, self._toolset = sessions, toolset
        self._scope = as_text(scope) if scope is not None else None
        self._stop: Callable[[], None] | None = None

    def watched(self, uris: frozenset[str]) -> None:
        ours = any(uri.startswith(_OURS) for uri in uris)
        if ours and self._stop is None:
            self._stop = self._sessions.listen(self._changed)
        elif not ours and self._stop is not None:
            self._stop()
            self._stop = None

    def _changed(self, changes: frozenset[Change]) -> None:
        # Nobody is told what happens to sessions that they may not see, whose ids they may know.
        seen = [one for one in changes if self._scope in (None, one.workspace)]
        # What a session says changes how many messages it has, and when it was last active.
        told = {(kind, one.session) for one in seen for kind in (one.what, "session") if one.what != "toasts"}
        for uri in self._toolset.watched:
            kind, _, session = uri.partition("://")
            # What is not said of one session may have changed all of them.
            if (kind, session) in told or (kind, None) in told:
                self._toolset.changes.resource_updated(uri)
