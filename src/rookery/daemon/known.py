"""The settings as keys: what each accepts, who may give it, and what it is called in the environment."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from rookery.daemon.settings import Settings


@dataclass(frozen=True)
class Known:
    """One key, as `rookery config` and the docs show it."""

    key: str
    type: Any
    default: Any
    text: str
    project: bool
    live: bool

    @property
    def is_table(self) -> bool:
        """Whether its keys are names of the user's choice."""
        return get_origin(get_args(self.type)[0]) is dict

    @property
    def accepts(self) -> str:
        """What may be given, in words."""
        kind, *metas = get_args(self.type)
        if get_origin(kind) is Literal:
            return "one of " + ", ".join(get_args(kind))
        if kind is str:
            return "text"
        if self.is_table:
            return "a table with a table for each name"
        least = next((meta.ge if meta.ge is not None else meta.gt for meta in metas if meta.le is not None), None)
        most = next((meta.le for meta in metas if meta.le is not None), None)
        number = "a whole number" if kind is int else "a number"
        return f"{number} from {least} to {most}" if kind is int else f"{number} above {least}, up to {most}"

    @property
    def variable(self) -> str:
        return "ROOKERY_" + self.key.upper().replace(".", "_")


def known_settings() -> dict[str, Known]:
    return {known.key: known for known in _walk(Settings, Settings(), "")}


def _walk(kind: type, defaults: Any, prefix: str) -> Iterator[Known]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        default = getattr(defaults, name)
        if get_origin(hint) is not Annotated:
            yield from _walk(hint, default, f"{prefix}{name}.")
            continue
        text = next(meta.description for meta in hint.__metadata__ if meta.description)
        extra: dict[str, bool] = next((meta.extra for meta in hint.__metadata__ if meta.extra), None) or {}
        yield Known(prefix + name, hint, default, text, extra.get("project", False), extra.get("live", False))
