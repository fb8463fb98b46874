"""Runs the user's command when a workspace begins to need its user."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rookery.system.bus import Event
from rookery.system.errors import RookeryError
from rookery.system.processes import MARKER
from rookery.system.spawn import Spawner
from rookery.system.tasks import TaskSet
from rookery.workspaces.agent import Agent
from rookery.workspaces.attention import attention_of, attention_of_agent
from rookery.workspaces.projects import Project
from rookery.workspaces.record import Workspace
from rookery.workspaces.service import Workspaces

logger = logging.getLogger("rookery.daemon")

_SECONDS = 60.0
_SHOWN = 500
_WORKSPACE, _AGENT = "workspace.", "agent.state"
# Of a deletion or restoring, on its way or at its end, of which nothing is left to do for the user.
_PROGRESS = "progress"

# Of a workspace, or of its agent: project, name, and which of the two.
Name = tuple[str, str, str]


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
            self._needs = {(one.project.id, one.name, _WORKSPACE): _reasons(attention_of(one)) for one in every}

    async def close(self) -> None:
        await self._tasks.close()

    async def heard(self, event: Event) -> None:
        """Each event tells how a workspace is then; what it is by now may have come and gone again."""
        told = event.data
        if event.type == "workspace.deleted":
            for kind in (_WORKSPACE, _AGENT):
                self._needs.pop((told["project"], told["name"], kind), None)
        elif event.type == _AGENT:
            self._consider(told, _AGENT, attention_of_agent(msgspec.convert(told["agent"], Agent)))
        elif event.type.startswith(_WORKSPACE) and _PROGRESS not in told:
            self._consider(told, _WORKSPACE, attention_of(_workspace_of(told)))

    def _consider(self, told: Mapping[str, Any], kind: str, needs: Sequence[dict[str, str]]) -> None:
        name: Name = (told["project"], told["name"], kind)
        before, self._needs[name] = self._needs.get(name, frozenset[str]()), _reasons(needs)
        if new := [one for one in needs if one["reason"] not in before]:
            self._tasks.start(self._tell({**told, "attention": new}), told["name"])

    async def _tell(self, told: Mapping[str, Any]) -> None:
        given = {
            "ROOKERY_WORKSPACE_NAME": told["name"],
            "ROOKERY_WORKSPACE_PATH": told["path"],
            "ROOKERY_ATTENTION": ",".join(one["reason"] for one in told["attention"]),
        }
        try:
            ran = await self._spawner.run(
                ["/bin/sh", "-c", self.command],
                name="notify",
                cwd=Path.home(),
                # The user's own command, which may have to find the user's screen.
                env={name: value for name, value in os.environ.items() if name != MARKER} | given,
                timeout=_SECONDS,
                input=msgspec.json.encode(told),
            )
        except RookeryError as error:
            logger.warning("the notify command failed: %s", error.message)
            return
        if ran.returncode != 0:
            said = ran.stderr.decode("utf-8", "replace").strip()[-_SHOWN:]
            logger.warning("the notify command ended with %d: %s", ran.returncode, said)


def _workspace_of(told: Mapping[str, Any]) -> Workspace:
    """The workspace that an event is about, as far as it tells."""
    project, path = Project(told["project"], "", ""), Path(told["path"])
    more = {name: told[name] for name in ("branch", "main", "state", "error", "code", "open")}
    return Workspace(project, told["name"], path, **more)


def _reasons(needs: Sequence[dict[str, str]]) -> frozenset[str]:
    return frozenset(one["reason"] for one in needs)
