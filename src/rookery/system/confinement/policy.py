"""What a confined process may do, as plain data."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ConfinementPolicy:
    """The access of a process and of everything that it starts. What is not listed is refused.

    Paths are absolute; a folder stands for all that is in it, and a path that does not exist is skipped. `execute`
    includes reading, and `write` includes both. In `linkless` folders files and folders can be written, but no links
    can be made, and nothing can be moved into another folder: programs that are not confined write there too, and would
    follow a link. `unlisted` folders can be written to, but their content cannot be listed. `devices` can be read,
    written and controlled.

    `network` allows TCP and UDP. `connect_ports` and `bind_ports` limit TCP to these ports; None means all of them.
    """

    read: tuple[str, ...] = ()
    execute: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    linkless: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    network: bool = True
    connect_ports: tuple[int, ...] | None = None
    bind_ports: tuple[int, ...] | None = None
    unix_sockets: bool = False
    signals: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the policy as JSON data, from which `parse_policy` makes it again."""
        return asdict(self)


def parse_policy(data: dict[str, Any]) -> ConfinementPolicy:
    """Return the policy of `ConfinementPolicy.as_dict` data."""
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}  # pyright: ignore[reportUnknownArgumentType]
    return ConfinementPolicy(**fields)
