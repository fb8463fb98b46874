"""Agents in the context of a project: their state and last messages, by access rights. With real OpenCodes."""

from pathlib import Path

import pytest

from rookery.system.ids import project_id
from tests.support.agents.host import start_agent_host
from tests.support.agents.watcher import make_script
from tests.support.gateway.gateway import OWNERS
from tests.support.mcp.caller import Message, words
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SCRIPT = make_script(hello=[{"say": "hello yourself"}], goodbye=[{"say": "see you soon"}])


def sections(answer: Message) -> set[str]:
    receipts = answer["result"]["_meta"]["rookery/context"]["receipts"]
    return {one["key"] for one in receipts if one["key"].startswith("agents/")}


@requirement("context.get.aggregate")
async def test_the_owner_sees_all_agents_of_a_project_and_a_workspaces_token_its_own() -> None:
    app = make_repository(Path.home() / "src" / "app")
    async with start_agent_host(SCRIPT, app, start="use", with_tokens=True) as host:
        left, right = await host.create("left", prompt="hello"), await host.create("right", prompt="goodbye")
        await host.said(left, "hello yourself")
        await host.said(right, "see you soon")
        gateway = host.gateway
        place = f"/w/{project_id(app)}/left/mcp"
        owner = await gateway.caller(place, headers={"Authorization": f"Bearer {OWNERS}"})
        answer = await owner.call("get_project_context")
        assert sections(answer) == {"agents/left", "agents/right"}
        for text in ("user: hello", "assistant: hello yourself", "assistant: see you soon", "): idle"):
            assert text in words(answer), text
        token = await gateway.workspaces.token(left)
        own = await gateway.caller(place, headers={"Authorization": f"Bearer {token}"})
        answer = await own.call("get_project_context")
        assert sections(answer) == {"agents/left"}
        assert "assistant: hello yourself" in words(answer) and "see you soon" not in words(answer)
        hidden = await own.ask("resources/read", {"uri": "context://agents/right"})
        assert "error" in hidden and "see you soon" not in str(hidden)
        await host.agents.stop(left)
        assert sections(await owner.call("get_project_context")) == {"agents/right"}
