"""Runs the user's command when a workspace starts to need its user."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rookery.operations.status import NotifyFailure
from rookery.system.bus import Bus, Event
from rookery.system.causes import explain_end
from rookery.system.clock import SYSTEM_CLOCK, iso
from rookery.system.errors import RookeryError
from rookery.system.log import REDACTOR
from rookery.system.process.spawn import Spawner
from rookery.system.process.table import MARKER
from rookery.system.tasks import TaskSet
from rookery.workspaces.faultpoints import fault_point
from rookery.workspaces.overview import Overview

logger = logging.getLogger("rookery.daemon")

_COMMAND_SECONDS = 60.0
_MAX_OUTPUT_CHARS = 500
# Events come in bursts; they are handled together.
_BATCH_SECONDS = 0.05
# Only git reports these, and it is run less often than the other checks.
_CONFLICTS = "conflicts"

# A project's id and the name of a workspace.
WorkspaceName = tuple[str, str]
# A reason, and the question or session that it is about.
NeedKey = tuple[str, str]
_PREPARATION_NEEDS: frozenset[NeedKey] = frozenset({("failed", ""), ("needs-approval", "")})


class Notifier:
    """Compares what workspaces need with what they needed before, and runs the command for each new need.

    An event only means that something of a project has changed. The needs of its workspaces are read from `overview`,
    and every `seconds` for all projects.
    """

    def __init__(self, command: str, overview: Overview, spawner: Spawner, events: Bus, seconds: float = 60.0) -> None:
        self.command = command
        # How the command failed, until it succeeds.
        self.failure: NotifyFailure | None = None
        self._overview = overview
        self._spawner = spawner
        self._events = events
        self._seconds = seconds
        self._needs: dict[WorkspaceName, frozenset[NeedKey]] = {}
        # The id of the newest event when the command was last run for a failed preparation.
        self._failures_reported: dict[WorkspaceName, int] = {}
        # Workspaces that existed at the start and whose conflicts have not been checked yet.
        self._unchecked: set[WorkspaceName] = set()
        self._changed_projects: set[str] = set()
        self._changed = asyncio.Event()
        self._tasks = TaskSet("notify")

    async def begin(self) -> None:
        """Read the needs that exist when the daemon starts: these are not reported again."""
        if self.command:
            workspaces = await self._overview.all()
            self._needs = {_name_of(workspace): _keys(workspace["attention"]) for workspace in workspaces}
            self._unchecked = set(self._needs)

    async def close(self) -> None:
        await self._tasks.close()

    async def on_event(self, event: Event) -> None:
        """Record which project has changed."""
        await fault_point("notify.heard")
        project = event.data.get("project")
        if event.type == "workspace.failed":
            # A second failure is reported, however soon it comes; one read before its event arrived is not.
            name = (str(project), str(event.data.get("name")))
            if event.id > self._failures_reported.get(name, 0):
                self._needs[name] = self._needs.get(name, frozenset()) - _PREPARATION_NEEDS
        if event.type.startswith(("workspace.", "agent.")) and isinstance(project, str):
            self._changed_projects.add(project)
            self._changed.set()

    async def run(self) -> None:
        """Check the projects that change, and periodically all projects, including their git status."""
        while True:
            await self._check(None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    while True:
                        await self._changed.wait()
                        await asyncio.sleep(_BATCH_SECONDS)
                        self._changed.clear()
                        while self._changed_projects:
                            await self._check(self._changed_projects.pop())

    async def _check(self, project: str | None) -> None:
        """Report new needs of one project, or of all; conflicts are only checked for all."""
        whole = project is None
        try:
            workspaces = await self._overview.all(project, status=whole)
        except RookeryError as error:
            if error.code == "project-not-found":
                self._needs = {name: needs for name, needs in self._needs.items() if name[0] != project}
                return
            logger.warning("cannot read which workspaces of %s need attention: %s", project or "all", error.message)
            return
        removed = {name for name in self._needs if whole or name[0] == project} - set(map(_name_of, workspaces))
        for name in removed:
            del self._needs[name]
            self._failures_reported.pop(name, None)
        for workspace in workspaces:
            self._compare(workspace, whole)
        if whole:
            self._unchecked.clear()

    def _compare(self, workspace: Mapping[str, Any], with_status: bool) -> None:
        """Report the needs of a workspace that it did not have before."""
        name = _name_of(workspace)
        needs = workspace["attention"]
        previous = self._needs.get(name, frozenset())
        current = _keys(needs)
        if not with_status:
            current |= {key for key in previous if key[0] == _CONFLICTS}
        self._needs[name] = current
        silent = {_CONFLICTS} if name in self._unchecked else set[str]()
        new = [need for need in needs if _key(need) not in previous and need["reason"] not in silent]
        if any(_key(need) in _PREPARATION_NEEDS for need in new):
            self._failures_reported[name] = self._events.last_id
        if new:
            self._tasks.start(self._run_command({**workspace, "attention": new}), workspace["name"])

    async def _run_command(self, workspace: Mapping[str, Any]) -> None:
        """Run the command with the new needs of a workspace in its environment, and as JSON on its stdin."""
        variables = {
            "ROOKERY_WORKSPACE_NAME": workspace["name"],
            "ROOKERY_WORKSPACE_PATH": workspace["path"],
            "ROOKERY_ATTENTION": ",".join(dict.fromkeys(need["reason"] for need in workspace["attention"])),
        }
        try:
            result = await self._spawner.run(
                ["/bin/sh", "-c", self.command],
                name="notify",
                cwd=Path.home(),
                # The user's own command, which may need access to the user's display.
                env={name: value for name, value in os.environ.items() if name != MARKER} | variables,
                timeout=_COMMAND_SECONDS,
                input=msgspec.json.encode(workspace),
                works_for="user",
            )
        except RookeryError as error:
            self._record_failure(error.message)
            logger.warning("the notify command failed: %s", error.message)
            return
        if result.returncode != 0:
            output = (
                result.stderr.decode("utf-8", "replace").strip() or result.stdout.decode("utf-8", "replace").strip()
            )
            ending = explain_end(result.returncode, output, (Path.home(),))
            self._record_failure(ending, output)
            logger.warning("the notify command %s: %s", ending, output[-_MAX_OUTPUT_CHARS:])
        elif self.failure is not None:
            self.failure = None
            logger.info("the notify command works again")

    def _record_failure(self, error: str, output: str = "") -> None:
        last_line = REDACTOR.clean(output).rpartition("\n")[2].strip()[-_MAX_OUTPUT_CHARS:]
        count = self.failure.count + 1 if self.failure is not None else 1
        self.failure = NotifyFailure(count, REDACTOR.clean(error), last_line, iso(SYSTEM_CLOCK.wall()))


def _name_of(workspace: Mapping[str, Any]) -> WorkspaceName:
    return workspace["project"], workspace["name"]


def _key(need: Mapping[str, str]) -> NeedKey:
    return need["reason"], need.get("id", "")


def _keys(needs: Sequence[Mapping[str, str]]) -> frozenset[NeedKey]:
    return frozenset(map(_key, needs))
