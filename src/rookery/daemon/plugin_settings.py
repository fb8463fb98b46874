"""The settings of plugins: what they may cost, and their own tables."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rookery.daemon.setting_kinds import Count, Seconds

Tables = Annotated[
    dict[str, dict[str, Any]],
    Meta(
        description="What plugins are told: a table for each, such as `[plugins.notify]`, of which the plugin says "
        "what may stand in it. `[plugins.state_files]` names files in which OpenCode's plugins keep their state, as "
        '`name = "path in the workspace"`, besides those that Rookery knows.'
    ),
]


class Hooks(msgspec.Struct, frozen=True):
    seconds: Annotated[
        Seconds,
        Meta(description="How long a plugin may take where somebody waits: before and after a tool, for its state."),
    ] = 5.0
    event_seconds: Annotated[
        Seconds, Meta(description="How long it may take for an event, which nobody waits for, or for an action.")
    ] = 60.0
    queue: Annotated[
        Count, Meta(description="How many events may wait for one plugin; what comes beyond that is dropped.")
    ] = 1000
    failures: Annotated[
        Count, Meta(description="After how many failures in a row a hook is switched off until the next start.")
    ] = 5
