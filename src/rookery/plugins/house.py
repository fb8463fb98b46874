"""What a plugin may use of the house it lives in."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rookery.sessions.records import SessionInfo
from rookery.sessions.service import Sessions
from rookery.system.clock import Clock
from rookery.system.tasks import TaskSet

LOG = logging.getLogger("rookery.plugins")


@dataclass(frozen=True, kw_only=True)
class House:
    """One for each plugin; what it starts with `tasks` ends with it.

    `settings` is its table `[plugins.<name>]`, `state_folder` a folder of its own that is there, `log` its logger, and
    `audit` keeps a line of text for the user, with the time, in `audit.log` of that folder.

    `scope` is the folder of the one workspace that the caller of an action, or of the state, may see; None is the
    owner, who sees all, and what hooks have. Pass it on to `sessions`, which refuse what lies outside of it.
    """

    plugin: str
    sessions: Sessions
    clock: Clock
    tasks: TaskSet
    state_folder: Path
    audit: Callable[[str], None]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    log: logging.Logger = LOG
    scope: Path | None = None

    async def session(self, id_: str) -> SessionInfo:
        """A session that the caller may see; raises RookeryError `session-not-found` for any other."""
        return await self.sessions.get(id_, self.scope)
