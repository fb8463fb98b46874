"""The settings of boulder. No repository may give any of them: what boulder sends costs money."""

from typing import Annotated

import msgspec
from msgspec import Meta

from rookery.daemon.setting_kinds import Seconds

Count = Annotated[int, Meta(ge=1, le=1000)]


class Boulder(msgspec.Struct, frozen=True):
    idle_seconds: Annotated[
        Seconds, Meta(description="How long a session has to be idle before boulder tells it to go on.")
    ] = 30.0
    cooldown_seconds: Annotated[
        Seconds,
        Meta(description="How long boulder waits between two enforcements; twice as long after each failure in a row."),
    ] = 30.0
    abort_seconds: Annotated[
        Seconds, Meta(description="How long boulder leaves a session alone whose turn somebody has just ended.")
    ] = 3.0
    failures: Annotated[
        Count, Meta(description="After so many failures in a row boulder leaves a session alone until you speak to it.")
    ] = 5
    budget: Annotated[
        Annotated[int, Meta(ge=0, le=1000)],
        Meta(description="How many enforcements a session gets that has no budget of its own."),
    ] = 5
    checks: Annotated[
        str,
        Meta(
            description="What tells whether work is left, with commas between them: `todos` (those of the session), "
            "`plan:<file>` (boxes `- [ ]` in a file of the workspace), `just:<task>` (a task that ends with 0). Where "
            "none of them says anything, the assistant's last words do."
        ),
    ] = "todos"
