"""OpenCode's own plugins in all workspaces, as their agents, their logs and the files there tell of them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rookery.agents.service import AgentService
from rookery.agents.tenant import Tenant
from rookery.plugins.foreign import ENDINGS, FOLDERS, asleep, kept_off, load_errors, named, shown
from rookery.plugins.records import PluginShown
from rookery.system.errors import RookeryError
from rookery.workspaces.record import as_text

_SECONDS = 10.0
# More lines than the log of an agent ever holds.
_LINES = 1_000_000


class OpenCodePlugins:
    """No agent is woken for it."""

    def __init__(self, agents: AgentService) -> None:
        self._agents = agents

    async def all(self, scope: Path | None) -> Sequence[PluginShown]:
        tenants = [one for path, one in self._agents.tenants.items() if scope in (None, path)]
        found = await asyncio.gather(*map(self._of, tenants))
        return [one for each in found for one in each]

    async def _of(self, tenant: Tenant) -> list[PluginShown]:
        workspace, life = tenant.workspace, tenant.agent.life
        place = as_text(workspace.path)
        files = await asyncio.to_thread(_files, workspace.path)
        if life is None:
            return [asleep(one, place) for one in files]
        try:
            async with asyncio.timeout(_SECONDS):
                specs = named(await life.client.config())
        except (RookeryError, TimeoutError):
            return [asleep(one, place) for one in files]
        lines = await self._agents.log_lines(workspace, _LINES)
        # Some two megabytes of them.
        errors = await asyncio.to_thread(load_errors, lines, life.client.directory)
        off = [] if life.started.wired.project_config else [one for one in files if one not in specs]
        return [*(shown(one, place, errors) for one in specs), *(kept_off(one, place) for one in off)]


def _files(root: Path) -> list[str]:
    """The files that OpenCode takes for plugins, as its config names them."""
    found: list[str] = []
    for folder in FOLDERS:
        try:
            names = sorted(one.name for one in (root / folder).iterdir())
        except OSError:
            continue
        found += [(root.resolve() / folder / name).as_uri() for name in names if name.endswith(ENDINGS)]
    return found
