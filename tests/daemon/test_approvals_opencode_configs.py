"""OpenCode configuration in a repository takes effect only after its content is approved."""

from pathlib import Path

import pytest

from rookery.agents.opencode.project_config import APPROVAL_KIND
from rookery.workspaces.model import Workspace
from tests.support.agents.host import AgentHost, start_agent_host
from tests.support.agents.launch import config_with
from tests.support.agents.watcher import make_script
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

# Leaves a note beside the folder that it runs in.
PLUGIN = """
import { writeFileSync } from "fs"
export default async ({ directory }) => { writeFileSync(directory + ".note", "ran"); return {} }
"""
SCRIPT = make_script(hello=[{"say": "hello yourself"}])
OFF = "the repository's own OpenCode config is not approved, and has no effect"


async def in_force(host: AgentHost, workspace: Workspace) -> bool:
    """Whether the repository's config is, in an agent that has loaded all that it loads."""
    life = await host.agents.ensure_running(workspace)
    config = await life.client.config()
    return config.get("username") == "heron"


def note(workspace: Workspace) -> Path:
    return workspace.path.with_name(f"{workspace.path.name}.note")


@requirement("agent.config.project", "guard.approve.repo")
async def test_c24_adding_a_project_approves_only_the_config_of_its_main_checkout() -> None:
    config = config_with(username="heron", plugin=["./note.js"])
    app = make_repository(Path.home() / "src" / "app", {"opencode.json": config, "note.js": PLUGIN})
    async with start_agent_host(SCRIPT, app, start="use") as host:
        configs = host.gateway.parts.configs
        same, other = await host.create("same"), await host.create("other")
        assert await in_force(host, same)
        assert note(same).read_text() == "ran"
        assert (await host.agents.process(same)).notes == ()
        await host.agents.stop(same)

        (other.path / "note.js").write_text(PLUGIN.replace("ran", "ran off with it"))
        assert not await in_force(host, other)
        agent = await host.agents.process(other)
        assert (agent.state, agent.notes) == ("running", (OFF,))
        assert [(one.reason, one.text) for one in agent.attention] == [
            ("needs-approval", f"{OFF}: rookery guard approve {APPROVAL_KIND}")
        ]
        assert not note(other).exists()

        (subject,) = [
            one for one in await configs.list_subjects() if await host.gateway.approvals.state(one) != "approved"
        ]
        assert (subject.kind, subject.place, subject.folder) == (APPROVAL_KIND, str(app), str(other.path))
        assert await host.gateway.approvals.state(subject) == "changed"
        await host.gateway.approvals.approve(subject, subject.digest)
        await host.gateway.parts._on_decision(subject.key)
        assert (await host.agents.process(other)).needs_restart
        assert not note(other).exists()

        await host.agents.restart(other)
        assert await in_force(host, other)
        agent = await host.agents.process(other)
        assert (agent.needs_restart, agent.notes, agent.attention) == (False, (), ())
        assert note(other).read_text() == "ran off with it"


@requirement("agent.config.project")
async def test_what_is_added_to_the_main_checkout_later_is_asked_about_too() -> None:
    app = make_repository(Path.home() / "src" / "app")
    async with start_agent_host(SCRIPT, app, start="use") as host:
        project = await host.tools.resolve_project(None)
        main = await host.tools.workspaces.get(project.id, "@main")
        configs = host.gateway.parts.configs
        assert await configs.explain_unapproved(main) == ""
        (app / "opencode.json").write_text(config_with(username="heron"))
        assert await configs.explain_unapproved(main) == OFF
        await host.gateway.parts.projects.add(app)
        assert await configs.explain_unapproved(main) == OFF, "to add what is there already approves nothing"
        (app / "opencode.json").write_text("{")
        assert "and cannot be approved: opencode.json cannot be read" in await configs.explain_unapproved(main)
