"""The workspaces that have an agent: it comes and goes with them, unless somebody wants it otherwise."""

import asyncio
from typing import TYPE_CHECKING, Literal

import msgspec

from rookery.agents import first_prompt
from rookery.agents.barrier import Barrier
from rookery.agents.declined import Declined
from rookery.agents.launching import Launcher
from rookery.agents.supervision import Pace
from rookery.agents.tenant import Tenant
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.workspaces.record import Workspace
from rookery.workspaces.service import Workspaces
from rookery.workspaces.worktrees import named_git_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rookery.agents.life import Life


class Tenancy:
    """Starts no agent before it is told to `begin_work`, and none by itself where they start on `use`."""

    def __init__(
        self,
        workspaces: Workspaces,
        launcher: Launcher,
        declined: Declined,
        events: Bus,
        *,
        start: Literal["open", "use"] = "open",
        idle_seconds: float = 0.0,
        pace: Pace = Pace(),  # noqa: B008 - frozen
    ) -> None:
        self.launcher = launcher
        self.barrier = Barrier(workspaces)
        self._workspaces, self._declined, self._events = workspaces, declined, events
        self._by_itself, self._idle_seconds, self._pace = start == "open", idle_seconds, pace
        self.tenants: dict[Path, Tenant] = {}
        # Called with every new process, before anything is heard of it.
        self.listeners: list[Callable[[Tenant, Life], None]] = []
        self._works = False

    def begin_work(self) -> None:
        """From now on agents may start."""
        self._works = True

    async def close(self) -> None:
        """Stop all of them, side by side."""
        self._works = False
        await asyncio.gather(*(tenant.close() for tenant in self.tenants.values()))
        self.tenants.clear()
        await self.launcher.installations.close()

    # ---- with its workspace

    async def opened(self, workspace: Workspace) -> None:
        if not self._works:
            return
        tenant = await self._tenant(workspace)
        wanted = self._by_itself and not await self._declined.has(tenant.own)
        if wanted or first_prompt.kept(tenant.own) is not None:
            tenant.take_up()

    async def closed(self, workspace: Workspace) -> bool:
        moved = await self.seen(workspace)
        return await self._leave([one] if (one := self.tenants.get(workspace.path)) is not None else []) or moved

    async def seen(self, workspace: Workspace) -> bool:
        """End what runs for it where it was before it was moved; whether there was anything."""
        return await self._leave(self._elsewhere(workspace.path, named_git_folder(workspace.path)))

    async def _leave(self, tenants: "Sequence[Tenant]") -> bool:
        """End these; whether there was anything to end."""
        for tenant in tenants:
            del self.tenants[tenant.workspace.path]
            self.barrier.forget(tenant.workspace.path)
        return any([await self._end(tenant) for tenant in tenants])

    async def _end(self, tenant: Tenant) -> bool:
        await tenant.end_turns()
        return await tenant.close()

    def _elsewhere(self, path: "Path", own: "Path | None") -> list[Tenant]:
        """What is there of a workspace where it was before it was moved: its git folder stays the same."""
        others = [one for one in self.tenants.values() if one.workspace.path != path] if own is not None else []
        return [one for one in others if own is not None and one.own.resolve() == own.resolve()]

    def check(self, prompt: str | None) -> None:
        first_prompt.check(prompt)
        if prompt is not None and not self._works:
            raise RookeryError("agent-unavailable", "there is no agent to give a prompt to", "leave it out")

    async def begin(self, workspace: Workspace, prompt: str | None) -> None:
        if not self._works:
            return
        tenant = await self._tenant(workspace)
        if prompt is not None:
            first_prompt.keep(tenant.own, prompt)
        if prompt is not None or self._by_itself:
            tenant.take_up()

    async def prompted(self, workspace: Workspace) -> None:
        tenant = self.tenants.get(workspace.path)
        if tenant is None or workspace.code == "needs-approval":
            return
        await tenant.taken_up()
        tenant.require_sent(f"{workspace.name} is made, but its prompt was not sent: ")

    async def decline(self, workspace: Workspace) -> None:
        await self._declined.add((await self._workspaces.finding.there(workspace)).own)
        await self.closed(workspace)

    async def wanted(self, workspace: Workspace) -> Tenant:
        """For whatever needs an agent: from now on one may run again."""
        if not self._works:
            raise RookeryError("agent-unavailable", f"no agent runs in {workspace.name}", "use it without one")
        if not workspace.open:
            workspace = await self._workspaces.open(workspace)
        tenant = await self._tenant(workspace)
        await self._declined.drop(tenant.own)
        return tenant

    def _began(self, tenant: Tenant, life: "Life") -> None:
        for listener in self.listeners:
            listener(tenant, life)

    async def _tenant(self, workspace: Workspace) -> Tenant:
        found = await self._workspaces.finding.there(workspace)
        if found.workspace.state == "deleting":
            raise RookeryError(
                "invalid-input", f"{workspace.name} is being deleted", "rookery ws restore brings it back"
            )
        await self._leave(self._elsewhere(found.workspace.path, found.own))
        if (tenant := self.tenants.get(found.workspace.path)) is None:
            tenant = self.tenants[found.workspace.path] = Tenant(
                msgspec.structs.replace(found.workspace, state="ready", error=None, code=None),
                found.own,
                launcher=self.launcher,
                barrier=self.barrier,
                events=self._events,
                idle_seconds=self._idle_seconds,
                pace=self._pace,
                began=self._began,
            )
        return tenant
