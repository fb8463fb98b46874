"""The agents as a service of the daemon: behind a gateway that listens, and stopped before it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rookery.agents.configs import write_config
from rookery.agents.declined import Declined
from rookery.agents.injection import Redirected
from rookery.agents.installing import Installations
from rookery.agents.launching import Launcher, Options
from rookery.agents.ports import AgentPorts
from rookery.agents.service import AgentService
from rookery.agents.wired import Wired
from rookery.daemon.follow import follow
from rookery.daemon.gateway import GatewayService
from rookery.daemon.opencode_configs import OpenCodeConfigs
from rookery.daemon.settings import Settings
from rookery.guard.subject import Key
from rookery.sessions.executing_plays import Plays
from rookery.system.bus import Bus, Event
from rookery.system.spawn import Spawner
from rookery.system.store import Store
from rookery.system.tasks import TaskSet
from rookery.upstreams.jsonc import parse, plain
from rookery.workspaces.record import Workspace
from rookery.workspaces.service import Workspaces

if TYPE_CHECKING:
    from rookery.testing.tool_model import ToolModel
    from rookery.wire.http_client import HttpClient


def make_agents(
    settings: Settings, state: Path, store: Store, spawner: Spawner, events: Bus, workspaces: Workspaces
) -> AgentService:
    """The agents of all workspaces; what is around them is not known yet."""
    given = settings.agents
    ports = AgentPorts(store)
    installations = Installations(state, spawner, events, given.version)
    background = given.priority == "background"
    options = Options(env_from=given.env_from, start_seconds=given.start_seconds, background=background)
    launcher = Launcher(state, spawner, workspaces, ports, installations, read=read_jsonc, options=options)
    return AgentService(
        workspaces, launcher, Declined(store), events, start=given.start, idle_seconds=given.idle_seconds
    )


def read_jsonc(text: str) -> Any:
    return plain(parse(text))


class AgentsService:
    name = "agents"
    needs: Sequence[str] = ("endpoints",)

    def __init__(
        self, state: Path, agents: AgentService, gateway: GatewayService, configs: OpenCodeConfigs, events: Bus
    ) -> None:
        self.agents = agents
        self._state, self._gateway, self._configs, self._events = state, gateway, configs, events
        self._unlisten: dict[Path, Callable[[], None]] = {}
        self._tasks = TaskSet("agents")
        self.client: Callable[[], HttpClient] = gateway.client
        # The calls of tools that are to be played, and who plays them, to agents that carry a token that counts.
        self.plays = Plays()
        self.admits: Callable[[bytes], bool] = lambda key: False
        self._tool_model: ToolModel | None = None
        agents.launcher.surroundings = self

    async def start(self) -> None:
        write_config(self._state)
        await self.agents.launcher.ports.forget_gone()
        self._tasks.start(follow(self._events, self._heard), "events")
        self.agents.begin_work()

    async def stop(self) -> None:
        for path in list(self._unlisten):
            self._forget(path)
        await self._tasks.close()
        await self.agents.close()
        if self._tool_model is not None:
            await self._tool_model.stop()

    async def wired(self, workspace: Workspace) -> Wired:
        """What its agent is to be started with, as that is now."""
        # So that it is known which project the folder belongs to.
        await self._gateway.lookup.named(workspace.project.id, workspace.name)
        fleet = await self._gateway.hub.fleet(workspace.path)
        self._forget(workspace.path)
        self._unlisten[workspace.path] = fleet.listen(lambda: self._look_again(workspace.path), lambda session: None)
        slots = list(fleet.slots())
        served = [one.definition for one in slots if one.held_back is None and not one.waits]
        waits = await self._configs.waits(workspace)
        return Wired(
            port=self._gateway.hub.own_port,
            tool_port=await self._tool_port(),
            servers=tuple(Redirected(one.name, round(one.timeouts.execution * 1000)) for one in served),
            off=tuple(one.definition.name for one in slots if one.definition not in served),
            project_config=not waits,
            waits=waits,
        )

    async def _tool_port(self) -> int:
        if self._tool_model is None:
            # Imported with the first agent: a daemon without one starts sooner.
            from rookery.testing.tool_model import ToolModel

            self._tool_model = ToolModel(self.plays, lambda key: self.admits(key))
        return await self._tool_model.port()

    async def decided(self, key: Key) -> None:
        """Something of a project was approved, or is no longer: what runs there is told so."""
        for workspace in self.agents.workspaces():
            if workspace.project.path == key.place:
                await self.agents.look_again(workspace.path)

    def _forget(self, path: Path) -> None:
        """No longer hear of what changes around this workspace."""
        if stop := self._unlisten.pop(path, None):
            stop()

    def _look_again(self, path: Path) -> None:
        self._tasks.start(self.agents.look_again(path), f"look again at {path.name}")

    async def _heard(self, event: Event) -> None:
        self.agents.barrier.heard(event)
        if event.type == "workspace.closed":
            self._forget(Path(event.data["path"]))
        elif event.type == "project.removed":
            for workspace in self.agents.workspaces():
                if workspace.project.path == event.data["project"]["path"]:
                    self._forget(workspace.path)
                    await self.agents.closed(workspace)
