"""What OpenCode tells of itself: that it works, and the agents and models that it can run."""

import msgspec

from rookery.agents.records import Record


class AgentKind(Record, frozen=True):
    """One of the agents that OpenCode knows; it runs those that are `hidden` for itself."""

    name: str
    hidden: bool | None = None


class Health(Record, frozen=True):
    healthy: bool = False
    version: str = ""


class Provider(Record, frozen=True):
    """A company or program that runs models; `models` are their ids."""

    id: str
    name: str = ""
    models: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict[str, msgspec.Raw])


class Providers(Record, frozen=True):
    """`default` names a model for each provider by its id."""

    providers: tuple[Provider, ...] = ()
    default: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    def without(self, id_: str) -> "Providers":
        others = tuple(one for one in self.providers if one.id != id_)
        return Providers(others, {one: model for one, model in self.default.items() if one != id_})
