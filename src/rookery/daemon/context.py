"""Where the context of a workspace comes from: its files, and what the daemon knows of agents, servers and failures."""

from functools import partial

from rookery.agents.service import AgentService
from rookery.agents.tail import last_lines
from rookery.daemon.agent_context import agent_sections
from rookery.daemon.docker import Engine
from rookery.files import reading
from rookery.files.context.docker import docker_sections
from rookery.files.context.engine import Context
from rookery.files.context.failures import Failures, Mishap, failure_sections
from rookery.files.context.gathering import Gatherer
from rookery.files.context.section import Section
from rookery.files.context.sources import gatherers_of
from rookery.files.just import Just
from rookery.files.reading import Content
from rookery.files.sandbox import Root
from rookery.system.git import Git
from rookery.upstreams.hub import Hub
from rookery.workspaces.metadata import read_preparing
from rookery.workspaces.record import Workspace
from rookery.workspaces.setup import log_file
from rookery.workspaces.worktrees import named_git_folder

_SETUP_LINES = 40
_BROKEN = ("failed", "backoff")


class Gathering:
    def __init__(self, git: Git, just: Just, agents: AgentService, hub: Hub) -> None:
        self._git, self._just, self._agents, self._hub = git, just, agents, hub

    def context(self, workspace: Workspace, root: Root, failures: Failures, siblings: bool) -> Context:
        """With `siblings` it tells of the agents of the project's other workspaces too."""

        async def read(path: str, most: int) -> Content:
            return await reading.read(root, path, max_bytes=most)

        return Context(
            [
                *gatherers_of(workspace.path, self._git, self._just, read),
                Gatherer("agents", partial(agent_sections, self._agents, workspace, siblings=siblings)),
                Gatherer("failures", partial(self._failures, workspace, failures)),
                Gatherer(
                    "docker",
                    partial(docker_sections, Engine().ask, workspace.path, lambda: root.denied.workspaces),
                ),
            ]
        )

    async def _failures(self, workspace: Workspace, tasks: Failures) -> list[Section]:
        return failure_sections([*tasks.recent(), *_setup(workspace), *await self._servers(workspace)])

    async def _servers(self, workspace: Workspace) -> list[Mishap]:
        broken = [one for one in await self._hub.records(workspace.path) if one.status in _BROKEN and not one.shadowed]
        return [Mishap(f"the MCP server {one.name}", one.error or one.status, one.stderr) for one in broken]


def _setup(workspace: Workspace) -> list[Mishap]:
    own = named_git_folder(workspace.path)
    preparing = read_preparing(own) if own is not None else None
    if own is None or preparing is None or not preparing.error:
        return []
    return [Mishap("preparing the workspace", preparing.error, last_lines(log_file(own), _SETUP_LINES))]
