"""`session`: tools to control and read the sessions of agents."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rookery.operations.operation import BoundOperation
from rookery.plugins.boulder.service import Boulder
from rookery.sessions.service import Sessions
from rookery.toolsets.operations import operation_tools
from rookery.toolsets.session.prompts import session_prompts
from rookery.toolsets.session.resources import BoulderResources, SessionChanges, SessionReader, session_resources
from rookery.toolsets.toolset import Toolset


def session_toolset(
    operations: Sequence[BoundOperation[Any]], sessions: Sessions, scope: Path | None, boulder: Boulder
) -> Toolset:
    """Return the toolset for clients that may only access the sessions of `scope`, or all."""
    reader, boulder_resources = SessionReader(sessions, scope), BoulderResources(boulder, scope)
    toolset = Toolset(
        "session",
        operation_tools(operations, "session", scope),
        [*session_resources(reader), *boulder_resources.resources()],
        session_prompts(reader.complete_id),
    )
    changes = SessionChanges(sessions, toolset, scope)

    def on_watched(uris: frozenset[str]) -> None:
        changes.set_watched(uris)
        boulder_resources.set_watched(toolset, uris)

    toolset.on_watched = on_watched
    return toolset
