"""Which agent and model of OpenCode a caller means: their own names, or an alias of the settings."""

import difflib
from collections.abc import Iterable, Mapping

import msgspec

from rookery.agents.client import AgentClient
from rookery.agents.offers import Providers
from rookery.system.errors import RookeryError


class Alias(msgspec.Struct, frozen=True):
    """A name for an agent with a model; what is empty is left to OpenCode. `provider` is whose model it wants."""

    agent: str = ""
    model: str = ""
    provider: str = ""


# The seed's two examples. They take a model of their maker where there is one.
PREDEFINED: Mapping[str, Alias] = {"claude": Alias(provider="anthropic"), "gpt": Alias(provider="openai")}


class Choice(msgspec.Struct, frozen=True):
    agent: str | None = None
    model: str | None = None
    notes: tuple[str, ...] = ()


async def choose(client: AgentClient, agent: str | None, model: str | None, aliases: Mapping[str, Alias]) -> Choice:
    """What to tell OpenCode, which takes any name and fails later."""
    if agent is None and model is None:
        return Choice()
    notes: tuple[str, ...] = ()
    known = {**PREDEFINED, **aliases}
    offered = await client.providers()
    if agent is not None:
        own = [one.name for one in await client.agents() if not one.hidden]
        if agent not in own and (alias := known.get(agent)) is not None:
            if alias.agent and alias.agent not in own:
                raise _unknown("agent", alias.agent, own)
            if model is None:
                model, notes = _model_of(agent, alias, offered)
            agent = alias.agent or None
        elif agent not in own:
            raise _unknown("agent", agent, [*own, *known])
    return Choice(agent, _model(model, offered) if model is not None else None, notes)


def _model_of(name: str, alias: Alias, offered: Providers) -> tuple[str | None, tuple[str, ...]]:
    """The alias's own model, else one of its provider's, else the default, which is told."""
    if alias.model:
        return alias.model, ()
    chosen = offered.default.get(alias.provider)
    if chosen is not None:
        return f"{alias.provider}/{chosen}", ()
    told = f"OpenCode has no model for {name!r}: the session uses the default model"
    return None, (f"{told}; `sessions.agents.{name}` in the settings names another",)


def _model(model: str, offered: Providers) -> str:
    """In full. A name without its provider is enough where only one has it."""
    full = [f"{one.id}/{name}" for one in offered.providers for name in one.models]
    if model in full:
        return model
    fitting = [one for one in full if one.split("/", 1)[1] == model]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        message = f"{model!r} is a model of several providers"
        raise RookeryError("invalid-input", message, f"write one of {', '.join(fitting)}")
    raise _unknown("model", model, full)


def _unknown(kind: str, name: str, known: Iterable[str]) -> RookeryError:
    there = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name, there, n=5, cutoff=0.3) or there[:10]
    remedy = f"write one of {', '.join(near)}" if near else "OpenCode has none: sign in to a provider"
    return RookeryError("invalid-input", f"OpenCode has no {kind} {name!r}", remedy, details=there[:100])
