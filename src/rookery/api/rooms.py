"""What the doors lead to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.gateway.finding import Sight
from rookery.gateway.hooks import Hooks
from rookery.gateway.member import Member
from rookery.gateway.parking import Parking
from rookery.gateway.rules import Judge
from rookery.upstreams.hub import Hub
from rookery.upstreams.permissions import Permissions


@dataclass(frozen=True)
class Rooms:
    """What views are made of."""

    hub: Hub
    hooks: Hooks
    judge: Callable[[Permissions], Judge]
    # For the workspace that a view acts in, if any, and for the one that its client may see no more than, if any.
    toolsets: Callable[[Path | None, Path | None, Sight], Sequence[Member]]
    # What of ours a view in search mode shows.
    finder: Callable[[Sight], Member]
    info: dict[str, Any]
    parking: Parking
