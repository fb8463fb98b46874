"""What the daemon tells of workspaces. It may tell more than is written here; that is left out."""

from pathlib import Path
from typing import Literal

import msgspec


class Counts(msgspec.Struct, frozen=True):
    """Sessions of an agent, by what they do."""

    idle: int
    busy: int
    total: int


class AgentStatus(msgspec.Struct, frozen=True):
    type: Literal["none", "idle", "busy", "mixed"]
    counts: Counts


class WorkspaceStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`ahead` and `behind` count commits against the base, `unmerged_commits` those whose content is not in it."""

    is_dirty: bool
    unmerged_commits: int
    ahead: int
    behind: int
    conflicts: list[str]
    base: str | None
    agent: AgentStatus


class Need(msgspec.Struct, frozen=True):
    """What a workspace needs its user for; `reason` is a word for programs."""

    reason: str
    text: str


class Agent(msgspec.Struct, frozen=True):
    """The OpenCode process of a workspace; `error` tells why one that should run does not."""

    state: Literal["stopped", "starting", "running", "asleep", "restarting", "failed"]
    port: int | None
    pid: int | None
    error: str | None
    detail: str | None = None
    notes: list[str] = []
    needs_restart: bool = False


class WorkspaceRecord(msgspec.Struct, frozen=True):
    project: str
    name: str
    path: Path
    branch: str | None
    main: bool
    state: Literal["preparing", "ready", "failed", "missing", "deleting"]
    error: str | None
    open: bool
    agent: Agent
    attention: list[Need]
