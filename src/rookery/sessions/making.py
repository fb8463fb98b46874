"""Makes sessions and closes them, and shows toasts in their workspace."""

from collections.abc import Mapping
from pathlib import Path

from rookery.agents.events import SessionGone, SessionSeen
from rookery.agents.message_events import ToastShown
from rookery.agents.service import AgentService
from rookery.sessions.choosing import Alias, choose
from rookery.sessions.finding import Finding, Found
from rookery.sessions.records import Closed, SessionInfo
from rookery.sessions.terminals import Terminals
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError
from rookery.workspaces.record import Workspace
from rookery.workspaces.service import Workspaces

_VARIANTS = ("info", "success", "warning", "error")


class Making:
    def __init__(
        self, agents: AgentService, workspaces: Workspaces, finding: Finding, terminals: Terminals, clock: Clock
    ) -> None:
        self._agents, self._workspaces, self._finding, self._clock = agents, workspaces, finding, clock
        self._terminals = terminals

    async def create(
        self,
        directory: str,
        agent: str | None,
        model: str | None,
        title: str | None,
        aliases: Mapping[str, Alias],
        scope: Path | None,
    ) -> SessionInfo:
        tenant = await self._agents.wanted(await self._at(directory, scope))
        async with tenant.agent.used():
            room = self._finding.room(tenant)
            async with room.used() as life:
                choice = await choose(life.client, agent, model, aliases)
                made = await life.client.create_session(title=title, agent=choice.agent, model=choice.model)
                life.watcher.learn(SessionSeen(made))
                return await room.info(made, choice.notes)

    async def abort(self, found: Found) -> SessionInfo:
        async with found.room.used() as life:
            await life.client.abort(found.id)
        return await found.info()

    async def close(self, found: Found, delete: bool) -> Closed:
        try:
            return await self._closed(found, delete)
        finally:
            await self._terminals.end(found.id)

    async def _closed(self, found: Found, delete: bool) -> Closed:
        async with found.room.used() as life:
            if found.running:
                await life.client.abort(found.id)
            if delete:
                await life.client.delete_session(found.id)
                life.watcher.learn(SessionGone(found.id))
            else:
                away = await life.client.archive_session(found.id, self._clock.wall() * 1000)
                life.watcher.learn(SessionSeen(away))
        found.room.ledger.drop(found.id)
        return Closed(id=found.id, deleted=delete)

    async def show_toast(self, found: Found, message: str, title: str | None, variant: str, duration: int) -> None:
        if variant not in _VARIANTS or duration <= 0 or not message:
            remedy = f"a toast has a message, a duration in milliseconds, and one of {', '.join(_VARIANTS)}"
            raise RookeryError("invalid-input", "that is no toast", remedy)
        async with found.room.used() as life:
            found.room.toasts.expect(ToastShown(message, title, variant, duration), found.id)
            await life.client.show_toast(message, title, variant, duration)

    async def _at(self, directory: str, scope: Path | None) -> Workspace:
        if not directory.startswith("/"):
            raise RookeryError(
                "invalid-input", f"{directory!r} is no absolute path", "give the whole path of a workspace"
            )
        found = await self._workspaces.finding.find_at(directory)
        if found is None:
            message = f"{directory} is not a workspace"
            raise RookeryError("workspace-not-found", message, "see what there is: rookery ws list")
        if scope not in (None, found.workspace.path):
            message = f"{directory} is another workspace, and this token opens only {scope}"
            raise RookeryError("tool-denied", message, "use the owner's token")
        return found.workspace
