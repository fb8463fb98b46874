"""Runs the user's command when a workspace begins to need its user."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rookery.system.bus import Event
from rookery.system.errors import RookeryError
from rookery.system.processes import MARKER
from rookery.system.spawn import Spawner
from rookery.system.tasks import TaskSet
from rookery.workspaces.attention import attention_of
from rookery.workspaces.record import Workspace
from rookery.workspaces.service import Workspaces

logger = logging.getLogger("rookery.daemon")

_SECONDS = 60.0
_SHOWN = 500
_EVENTS = "workspace."
# How far something is, which changes nothing yet.
_ON_THE_WAY = frozenset({"workspace.deleting", "workspace.restoring"})

Name = tuple[str, str]


class Notifier:
    """Knows what each workspace needs its user for already, so that it is told once."""

    def __init__(self, command: str, workspaces: Workspaces, spawner: Spawner) -> None:
        self.command = command
        self._workspaces, self._spawner = workspaces, spawner
        self._needs: dict[Name, frozenset[str]] = {}
        self._tasks = TaskSet("notify")

    async def begin(self) -> None:
        """What is so when the daemon starts was so before, and is not told again."""
        if self.command:
            every = await self._workspaces.list()
            self._needs = {(one.project.id, one.name): _reasons(attention_of(one)) for one in every}

    async def close(self) -> None:
        await self._tasks.close()

    async def heard(self, event: Event) -> None:
        if not event.type.startswith(_EVENTS) or event.type in _ON_THE_WAY:
            return
        name: Name = (event.data["project"], event.data["name"])
        if event.type == "workspace.preparing":
            # Often, and each time it goes on by itself.
            self._needs.pop(name, None)
            return
        try:
            workspace = await self._workspaces.get(*name)
        except RookeryError:
            self._needs.pop(name, None)
            return
        needs = attention_of(workspace)
        before, self._needs[name] = self._needs.get(name, frozenset[str]()), _reasons(needs)
        if new := [one for one in needs if one["reason"] not in before]:
            self._tasks.start(self._tell(workspace, new), workspace.name)

    async def _tell(self, workspace: Workspace, needs: Sequence[dict[str, str]]) -> None:
        told = msgspec.json.encode({**workspace.as_dict(), "attention": needs})
        given = {
            "ROOKERY_PROJECT_PATH": workspace.project.path,
            "ROOKERY_WORKSPACE_NAME": workspace.name,
            "ROOKERY_WORKSPACE_PATH": str(workspace.path),
            "ROOKERY_ATTENTION": ",".join(one["reason"] for one in needs),
        }
        try:
            ran = await self._spawner.run(
                ["/bin/sh", "-c", self.command],
                name="notify",
                cwd=Path.home(),
                # The user's own command, which may have to find the user's screen.
                env={name: value for name, value in os.environ.items() if name != MARKER} | given,
                timeout=_SECONDS,
                input=told,
            )
        except RookeryError as error:
            logger.warning("the notify command failed: %s", error.message)
            return
        if ran.returncode != 0:
            said = ran.stderr.decode("utf-8", "replace").strip()[-_SHOWN:]
            logger.warning("the notify command ended with %d: %s", ran.returncode, said)


def _reasons(needs: Sequence[dict[str, str]]) -> frozenset[str]:
    return frozenset(one["reason"] for one in needs)
