"""The plugins of projects: which file runs with which content, and what became of those that do not."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from rookery.daemon.plugin_files import PluginFiles
from rookery.guard.subject import Subject
from rookery.plugins.loading import Found, from_text, loaded
from rookery.plugins.plugin import Plugin
from rookery.plugins.records import PluginShown
from rookery.plugins.registry import Key, Origin
from rookery.system.errors import RookeryError
from rookery.workspaces.projects import Project

logger = logging.getLogger("rookery.daemon")

Load = Callable[[Plugin, Origin], Awaitable[Key]]
End = Callable[[Key], Awaitable[None]]
Cannot = Callable[[Found, RookeryError], PluginShown]

_CHANGED = "its file has changed; what was loaded runs on until the new content is approved, or the daemon restarts"
_GONE = "its file is gone; it runs until the daemon restarts"


@dataclass(frozen=True)
class _Known:
    """What became of a file with this content: it runs, or could not be loaded."""

    project: str
    digest: str
    key: Key | None = None
    failed: PluginShown | None = None


class ProjectPlugins:
    """What was loaded of a file runs on when the file changes, until other content of it is approved."""

    def __init__(self, files: PluginFiles, load: Load, end: End, cannot: Cannot) -> None:
        self._files, self._start, self._stop, self._cannot = files, load, end, cannot
        self._known: dict[str, _Known] = {}
        self._changing = asyncio.Lock()

    async def load(self, project: Project) -> None:
        """All that is approved and does not run."""
        async with self._changing:
            for subject in await self._files.of(project):
                known = self._known.get(subject.source)
                if known is None or (known.key is None and known.digest != subject.digest):
                    await self._load(project, subject)

    async def decided(self, project: Project, name: str) -> None:
        """Load what is approved by now instead of what runs; what is no longer approved is ended."""
        async with self._changing:
            for subject in await self._files.of(project):
                if subject.name == name:
                    await self._end(subject.source)
                    await self._load(project, subject)
            # The file may be gone, and what was loaded of it is not.
            for source in [one for one in self._of(project.id) if PurePath(one).name == name]:
                if not any(one.source == source for one in await self._files.of(project)):
                    await self._end(source)

    async def forget(self, project: str) -> None:
        async with self._changing:
            for source in self._of(project):
                await self._end(source)

    async def notes(self, projects: Iterable[Project]) -> Mapping[Key, str]:
        """What is to be said of those that run."""
        now = {one.source: one.digest for project in projects for one in await self._files.of(project)}
        return {
            known.key: _CHANGED if source in now else _GONE
            for source, known in self._known.items()
            if known.key is not None and now.get(source) != known.digest
        }

    async def others(self, project: Project) -> Sequence[PluginShown]:
        """Those of a project that do not run, and what waits of those that do."""
        await self.load(project)
        found: list[PluginShown] = []
        for subject in await self._files.of(project):
            known = self._known.get(subject.source)
            if known is not None and known.digest == subject.digest:
                found += [known.failed] if known.failed is not None else []
            elif not await self._files.approved(subject):
                found.append(_waits(project, subject, known is not None))
        return found

    async def _load(self, project: Project, subject: Subject) -> None:
        if not await self._files.approved(subject):
            return
        # The very text that is approved: the file may be another one by now.
        found = from_text(PurePath(subject.name).stem, subject.content, Origin(subject.source, project.id))
        try:
            key = await self._start(await loaded(found), found.origin)
            self._known[subject.source] = _Known(project.id, subject.digest, key)
        except RookeryError as error:
            self._known[subject.source] = _Known(project.id, subject.digest, failed=self._cannot(found, error))

    async def _end(self, source: str) -> None:
        known = self._known.pop(source, None)
        if known is not None and known.key is not None:
            await self._stop(known.key)

    def _of(self, project: str) -> list[str]:
        return [source for source, known in self._known.items() if known.project == project]


def _waits(project: Project, subject: Subject, runs: bool) -> PluginShown:
    why = f"it cannot be approved: {subject.problem}" if subject.problem else f"rookery guard approve {subject.name}"
    return PluginShown(
        name=PurePath(subject.name).stem,
        kind="rookery",
        origin=subject.source,
        status="needs_approval",
        project=project.id,
        note=f"other content of it runs; {why}" if runs else why,
    )
