"""The settings of the gateway."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rookery.daemon.setting_kinds import Seconds
from rookery.gateway.parking import MOST, MOST_EACH, SECONDS


class Gateway(msgspec.Struct, frozen=True):
    mode: Annotated[
        Literal["list", "search"],
        Meta(
            description="What clients see that do not choose with `?mode=`: a `list` of all tools, or only the two "
            "tools to `search` for others and to call them."
        ),
    ] = "list"
    parked_seconds: Annotated[
        Seconds,
        Meta(
            description="How long a call waits for the answer to a question of its server, or to one of yours "
            '(`"ask"`), before it is given up. Over HTTP this is also how long a client keeps its place that never '
            "comes back: it may do so on any connection, and none that ends tells."
        ),
    ] = SECONDS
    parked_calls: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)], Meta(description="How many calls may wait so at a time.")
    ] = MOST
    parked_calls_each: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)],
        Meta(description="How many of these may come by the same token."),
    ] = MOST_EACH
