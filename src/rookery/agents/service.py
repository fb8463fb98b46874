"""The agents of all workspaces, as every face asks for them: what they do, and what is to be done with them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rookery.agents.launching import log_of
from rookery.agents.life import Life
from rookery.agents.status import SessionState
from rookery.agents.tail import last_lines
from rookery.agents.tenancy import Tenancy
from rookery.system.errors import RookeryError
from rookery.workspaces.agent import Agent, AgentSession, AgentStatus
from rookery.workspaces.record import Workspace

_KNOWN_SECONDS = 60.0


class AgentService(Tenancy):
    # ---- what is told

    async def status(self, workspace: Workspace) -> AgentStatus:
        tenant = self.tenants.get(workspace.path)
        return tenant.agent.status if tenant is not None else AgentStatus()

    async def process(self, workspace: Workspace) -> Agent:
        tenant = self.tenants.get(workspace.path)
        if tenant is None:
            await self.seen(workspace)
        return tenant.record() if tenant is not None else Agent()

    def sessions(self, workspace: Workspace) -> Sequence[SessionState]:
        """What the sessions of its agent do, as far as that is known."""
        tenant = self.tenants.get(workspace.path)
        return tenant.agent.sessions if tenant is not None else ()

    async def port(self, workspace: Workspace) -> int | None:
        life = await self._running(workspace)
        return life.process.port if life is not None else None

    async def session(self, workspace: Workspace) -> AgentSession | None:
        """That of the first prompt, else the one that was used last."""
        if await self._running(workspace) is None:
            return None
        tenant = self.tenants[workspace.path]
        async with tenant.agent.used() as life:
            first = tenant.session
            found = [first] if first is not None else [one.id for one in await life.client.sessions()]
            return AgentSession(life.process.port, found[0]) if found else None

    def log(self, workspace: Workspace) -> Path:
        return log_of(self.launcher.state, workspace)

    async def log_lines(self, workspace: Workspace, count: int) -> list[str]:
        """What it printed last."""
        return await asyncio.to_thread(last_lines, self.log(workspace), count)

    # ---- what is done

    async def start(self, workspace: Workspace) -> Agent:
        """Start or wake it, whether or not the workspace is prepared; waits until it listens."""
        await self.up(workspace)
        return await self.process(workspace)

    async def stop(self, workspace: Workspace) -> Agent:
        """End it until somebody starts it."""
        await self.decline(workspace)
        return Agent()

    async def restart(self, workspace: Workspace) -> int:
        return (await (await self.wanted(workspace)).agent.restart()).process.port

    async def resume(self, workspace: Workspace) -> list[str]:
        """Take up every turn that was cut off, and the first prompt if it could not be sent; answers the sessions."""
        tenant = await self.wanted(workspace)
        async with tenant.agent.used() as life:
            await _known(life)
            cut_off = [one.id for one in life.watcher.sessions if one.state == "interrupted"]
            for session in cut_off:
                await life.watcher.resume(session)
                tenant.watch_turn(life, session)
        if tenant.unsent is not None:
            tenant.take_up()
            await tenant.taken_up()
            tenant.require_sent()
            cut_off += [tenant.session] if tenant.session is not None else []
        return cut_off

    async def up(self, workspace: Workspace) -> Life:
        """Its process, started or woken if it has to be."""
        return await (await self.wanted(workspace)).agent.up()

    async def look_again(self, path: Path) -> None:
        """What is around a workspace may have changed: say so where its agent was started with something else."""
        tenant = self.tenants.get(path)
        life = tenant.agent.life if tenant is not None else None
        if tenant is not None and life is not None:
            now = await self.launcher.surroundings.wired(tenant.workspace)
            tenant.outdated = now != life.started.wired
            tenant.tell()

    def workspaces(self) -> list[Workspace]:
        """Those that have an agent, whatever it does."""
        return [one.workspace for one in self.tenants.values()]

    async def _running(self, workspace: Workspace) -> Life | None:
        """Its process; one that sleeps is woken."""
        tenant = self.tenants.get(workspace.path)
        if tenant is None:
            return None
        return await tenant.agent.up() if tenant.agent.state == "asleep" else tenant.agent.life


async def _known(life: Life) -> None:
    try:
        async with asyncio.timeout(_KNOWN_SECONDS):
            await life.watcher.known()
    except TimeoutError:
        raise RookeryError("timeout", "the agent does not tell of its sessions", "rookery agent restart") from None
