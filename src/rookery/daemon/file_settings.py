"""The settings of files: what is a secret, and which tasks may run."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rookery.daemon.setting_kinds import Seconds


class Files(msgspec.Struct, frozen=True):
    secret: Annotated[
        str,
        Meta(
            description="Patterns for names of files that no tool reads, with commas between them, besides those that "
            "Rookery knows: `.env`, keys, credentials and the like."
        ),
    ] = ""
    allowed: Annotated[
        str,
        Meta(
            description="Patterns for names of files that may be read though they look like secrets, with commas "
            "between them, besides `.env.example` and the like."
        ),
    ] = ""


class Just(msgspec.Struct, frozen=True):
    approval: Annotated[
        Literal["changed", "always", "never"],
        Meta(
            description="Whether a justfile has to be approved before a tool runs one of its tasks: if it is `changed` "
            "against the main checkout's of the day the project was added, `always`, or `never`."
        ),
    ] = "changed"
    seconds: Annotated[Seconds, Meta(description="How long a task may run if its caller does not say.")] = 600.0
