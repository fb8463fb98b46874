"""Which agent and model a name selects; unknown names are refused before OpenCode accepts them."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from rookery.agents.opencode.api import AgentDefinition, ModelProviders
from rookery.sessions.aliases import AgentAlias, AgentChoice, resolve_agent
from rookery.system.errors import RookeryError

pytestmark = pytest.mark.anyio

OFFERED: dict[str, Any] = {
    "providers": [
        {"id": "anthropic", "models": {"opus": {}, "shared": {}}},
        {"id": "other", "models": {"org/big": {}, "shared": {}}},
    ],
    "default": {"anthropic": "opus", "other": "org/big"},
}


class OpenCode:
    async def agents(self) -> list[AgentDefinition]:
        return [AgentDefinition("build"), AgentDefinition("plan"), AgentDefinition("title", hidden=True)]

    async def providers(self) -> ModelProviders:
        return msgspec.json.decode(msgspec.json.encode(OFFERED), type=ModelProviders)


async def chosen(agent: str | None, model: str | None, aliases: Mapping[str, AgentAlias] | None = None) -> AgentChoice:
    return await resolve_agent(cast(Any, OpenCode()), agent, model, aliases or {})


@pytest.mark.parametrize(
    ("agent", "model", "choice"),
    [
        (None, None, AgentChoice()),
        ("plan", None, AgentChoice("plan")),
        (None, "anthropic/opus", AgentChoice(None, "anthropic/opus")),
        (None, "opus", AgentChoice(None, "anthropic/opus")),
        (None, "other/org/big", AgentChoice(None, "other/org/big")),
        (None, "org/big", AgentChoice(None, "other/org/big")),
        ("claude", None, AgentChoice(None, "anthropic/opus")),
        ("claude", "other/shared", AgentChoice(None, "other/shared")),
    ],
)
async def test_names_of_opencode_are_written_in_full(agent: str | None, model: str | None, choice: AgentChoice) -> None:
    assert await chosen(agent, model) == choice


async def test_an_alias_names_agent_and_model_and_yields_to_an_agent_of_that_name() -> None:
    aliases = {
        "careful": AgentAlias("plan", "other/org/big"),
        "claude": AgentAlias("build", "anthropic/shared"),
        "plan": AgentAlias("build"),
    }
    assert await chosen("careful", None, aliases) == AgentChoice("plan", "other/org/big")
    assert await chosen("careful", "opus", aliases) == AgentChoice("plan", "anthropic/opus")
    assert await chosen("claude", None, aliases) == AgentChoice("build", "anthropic/shared")
    assert await chosen("plan", None, aliases) == AgentChoice("plan")


async def test_a_predefined_alias_without_a_model_takes_the_default_and_says_so() -> None:
    found = await chosen("gpt", None)
    assert (found.agent, found.model) == (None, None)
    assert "sessions.agents.gpt" in found.notes[0]


@pytest.mark.parametrize(
    ("agent", "model", "named"),
    [
        ("bild", None, "build"),
        ("title", None, "build"),
        (None, "anthropic/opsu", "anthropic/opus"),
        (None, "shared", "anthropic/shared, other/shared"),
        ("lost", None, "build"),
        ("broken", None, "anthropic/opus"),
    ],
)
async def test_what_there_is_not_is_refused_with_what_there_is(
    agent: str | None, model: str | None, named: str
) -> None:
    aliases = {"lost": AgentAlias("bulid"), "broken": AgentAlias("build", "anthropic/opsu")}
    with pytest.raises(RookeryError) as caught:
        await chosen(agent, model, aliases)
    assert caught.value.code == "invalid-input"
    assert named in caught.value.remedy
