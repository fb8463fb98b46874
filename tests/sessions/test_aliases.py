"""Which agent and model is meant, told before OpenCode would take any name and fail later."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from rookery.agents.offers import AgentKind, Providers
from rookery.sessions.choosing import Alias, Choice, choose
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
    async def agents(self) -> list[AgentKind]:
        return [AgentKind("build"), AgentKind("plan"), AgentKind("title", hidden=True)]

    async def providers(self) -> Providers:
        return msgspec.json.decode(msgspec.json.encode(OFFERED), type=Providers)


async def chosen(agent: str | None, model: str | None, aliases: Mapping[str, Alias] | None = None) -> Choice:
    return await choose(cast(Any, OpenCode()), agent, model, aliases or {})


@pytest.mark.parametrize(
    ("agent", "model", "choice"),
    [
        (None, None, Choice()),
        ("plan", None, Choice("plan")),
        (None, "anthropic/opus", Choice(None, "anthropic/opus")),
        (None, "opus", Choice(None, "anthropic/opus")),
        (None, "other/org/big", Choice(None, "other/org/big")),
        (None, "org/big", Choice(None, "other/org/big")),
        ("claude", None, Choice(None, "anthropic/opus")),
        ("claude", "other/shared", Choice(None, "other/shared")),
    ],
)
async def test_names_of_opencode_are_written_in_full(agent: str | None, model: str | None, choice: Choice) -> None:
    assert await chosen(agent, model) == choice


async def test_an_alias_names_agent_and_model_and_yields_to_an_agent_of_that_name() -> None:
    aliases = {
        "careful": Alias("plan", "other/org/big"),
        "claude": Alias("build", "anthropic/shared"),
        "plan": Alias("build"),
    }
    assert await chosen("careful", None, aliases) == Choice("plan", "other/org/big")
    assert await chosen("careful", "opus", aliases) == Choice("plan", "anthropic/opus")
    assert await chosen("claude", None, aliases) == Choice("build", "anthropic/shared")
    assert await chosen("plan", None, aliases) == Choice("plan")


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
    aliases = {"lost": Alias("bulid"), "broken": Alias("build", "anthropic/opsu")}
    with pytest.raises(RookeryError) as caught:
        await chosen(agent, model, aliases)
    assert caught.value.code == "invalid-input"
    assert named in caught.value.remedy
