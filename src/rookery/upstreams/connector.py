"""How a definition becomes a connection."""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.system import environment
from rookery.system.buffers import Ring
from rookery.system.processes import MARKER
from rookery.system.spawn import Spawner
from rookery.upstreams.definition import Definition
from rookery.upstreams.signin.signins import SignIns
from rookery.wire.channel import Channel
from rookery.wire.client_stdio import Program, StdioChannel

if TYPE_CHECKING:
    from rookery.wire.http_client import HttpClient

# What the daemon itself may have in its environment and no server is to see, not even one that inherits.
_NEVER = frozenset({"ROOKERY_TOKEN", MARKER})


# Whether a definition may be used that was found in a checkout; what the user defined for everywhere always may.
Approved = Callable[[Definition, Path | None], Awaitable[bool]]


@dataclass(frozen=True)
class Connector:
    """Makes channels. `http` gives the one client that all remote servers share, made on first use."""

    spawner: Spawner
    http: "Callable[[], HttpClient]"
    approved: Approved
    signins: SignIns
    # Seconds for an answer to what a server asks.
    patience: float = field(default=630.0, kw_only=True)

    def channels(self, definition: Definition, directory: Path, errors: Ring) -> tuple[Channel, Channel | None]:
        """The channel to try first, and the older one to fall back to."""
        if definition.kind == "local":
            return StdioChannel(self.spawner, program(definition, directory), errors), None
        from rookery.wire.client_http import HttpChannel
        from rookery.wire.client_sse import SseChannel

        signed_in = self.signins.credentials(definition)
        newer = HttpChannel(self.http(), definition.url, definition.headers, signed_in)
        older = SseChannel(self.http(), definition.url, definition.headers, signed_in)
        # Who says which one it is does not want the other one tried.
        return {"auto": (newer, older), "http": (newer, None), "sse": (older, None)}[definition.transport]


def program(definition: Definition, directory: Path) -> Program:
    """What to start for a local server, in which folder, with which environment."""
    given = dict(definition.environment)
    if Path(definition.command[0]).name == "opencode":
        given.setdefault("BUN_BE_BUN", "1")
    return Program(
        definition.name,
        definition.command,
        directory / (definition.cwd or ""),
        _whole(given) if definition.inherit else environment.allowed(given),
        definition.framing,
    )


def _whole(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _NEVER} | dict(given)
