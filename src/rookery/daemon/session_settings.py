"""The settings of sessions."""

from typing import Annotated

import msgspec
from msgspec import Meta


class SessionAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is empty is left to OpenCode."""

    agent: str = ""
    model: str = ""


class Sessions(msgspec.Struct, frozen=True):
    agents: Annotated[
        dict[str, SessionAgent],
        Meta(
            description="Names for an agent of OpenCode and a model, for new sessions: a table for each, such as "
            "`[sessions.agents.claude]`, with `agent` and `model` (written `provider/model`). What is left out is "
            "left to OpenCode. `claude` and `gpt` are there by themselves."
        ),
    ] = msgspec.field(default_factory=dict[str, SessionAgent])
    terminals: Annotated[
        int,
        Meta(
            ge=0,
            le=64,
            description="How many terminals may run at once, about 300 MB each, to show the screens of sessions. The "
            "one that was idle longest is ended for another. With 0 screens are renderings of the conversation.",
        ),
    ] = 4
    terminal_idle_seconds: Annotated[
        float, Meta(ge=1, le=86_400, description="After how long a terminal that nobody looks at is ended.")
    ] = 300.0
