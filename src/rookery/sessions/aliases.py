"""Resolve the agents and models of OpenCode by name, or by an alias from the settings."""

import difflib
from collections.abc import Iterable, Mapping

import msgspec

from rookery.agents.opencode.api import AgentClient, ModelProviders
from rookery.system.errors import RookeryError


class AgentAlias(msgspec.Struct, frozen=True):
    """A name for an agent with a model. OpenCode chooses whatever is empty.

    `provider` is the provider of the model to use.
    """

    agent: str = ""
    model: str = ""
    provider: str = ""


# The two examples of the seed documents (see tests/requirements.toml). Each uses a model of its provider if OpenCode
# has one.
PREDEFINED_ALIASES: Mapping[str, AgentAlias] = {
    "claude": AgentAlias(provider="anthropic"),
    "gpt": AgentAlias(provider="openai"),
}


class AgentChoice(msgspec.Struct, frozen=True):
    """The names to pass to OpenCode, and notes for the caller."""

    agent: str | None = None
    model: str | None = None
    notes: tuple[str, ...] = ()


async def resolve_agent(
    client: AgentClient, agent: str | None, model: str | None, aliases: Mapping[str, AgentAlias]
) -> AgentChoice:
    """Return the agent and model to pass to OpenCode.

    Raise an error for an unknown name: OpenCode accepts any and fails later.
    """
    if agent is None and model is None:
        return AgentChoice()
    notes: tuple[str, ...] = ()
    all_aliases = {**PREDEFINED_ALIASES, **aliases}
    model_providers = await client.providers()
    if agent is not None:
        agents = [entry.name for entry in await client.agents() if not entry.hidden]
        if agent not in agents and (alias := all_aliases.get(agent)) is not None:
            if alias.agent and alias.agent not in agents:
                raise _unknown_name_error("agent", alias.agent, agents)
            if model is None:
                model, notes = _alias_model(agent, alias, model_providers)
            agent = alias.agent or None
        elif agent not in agents:
            raise _unknown_name_error("agent", agent, [*agents, *all_aliases])
    return AgentChoice(agent, _resolve_model(model, model_providers) if model is not None else None, notes)


def _alias_model(name: str, alias: AgentAlias, model_providers: ModelProviders) -> tuple[str | None, tuple[str, ...]]:
    """Return the model of the alias, else the default model of its provider, else None and a note about it."""
    if alias.model:
        return alias.model, ()
    default_model = model_providers.default.get(alias.provider)
    if default_model is not None:
        return f"{alias.provider}/{default_model}", ()
    message = f"OpenCode has no model for {name!r}: the session uses the default model"
    return None, (f"{message}; to choose another, set `sessions.agents.{name}`",)


def _resolve_model(model: str, model_providers: ModelProviders) -> str:
    """Return a model with its provider. The provider may be omitted if only one has a model of that name."""
    full_names = [f"{provider.id}/{name}" for provider in model_providers.providers for name in provider.models]
    if model in full_names:
        return model
    matches = [full_name for full_name in full_names if full_name.split("/", 1)[1] == model]
    if len(matches) == 1:
        return matches[0]
    if matches:
        message = f"{model!r} is a model of several providers"
        raise RookeryError("invalid-input", message, f"use one of {', '.join(matches)}")
    raise _unknown_name_error("model", model, full_names)


def _unknown_name_error(kind: str, name: str, candidates: Iterable[str]) -> RookeryError:
    names = list(dict.fromkeys(candidates))
    similar = difflib.get_close_matches(name, names, n=5, cutoff=0.3) or names[:10]
    remedy = f"use one of {', '.join(similar)}" if similar else "OpenCode has none: sign in to a provider"
    return RookeryError("invalid-input", f"OpenCode has no {kind} {name!r}", remedy, details=names[:100])
