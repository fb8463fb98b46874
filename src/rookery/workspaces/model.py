"""The types of a workspace: the workspace itself, its name and folder, and the interface to its agent.

`AgentProvider` is implemented by the package that runs agents.
"""

import os
import re
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from rookery.system.errors import RookeryError
from rookery.workspaces.metadata import StartPoint
from rookery.workspaces.projects import Project

MAIN_WORKSPACE = "@main"

WorkspaceState = Literal["preparing", "ready", "failed", "missing", "deleting"]

_NAME = re.compile(r"[a-zA-Z0-9][-_./a-zA-Z0-9]*\Z")
MAX_NAME_LENGTH = 100
_PLACEHOLDERS = ("project", "id", "name")


class Workspace(msgspec.Struct, frozen=True):
    """A worktree of a project. `error` says why the workspace is failed or missing; `code` is the error code.

    An `open` workspace is one whose services, such as its agent, are meant to run.
    """

    project: Project
    name: str
    path: Path
    branch: str | None
    main: bool
    state: WorkspaceState
    error: str | None = None
    code: str | None = None
    open: bool = False
    # Where the branch started, if Rookery created the workspace.
    start: StartPoint | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the representation that all interfaces and events use."""
        return {
            "project": self.project.id,
            "name": self.name,
            "path": format_path(self.path),
            "branch": self.branch,
            "main": self.main,
            "state": self.state,
            "error": self.error,
            "code": self.code,
            "open": self.open,
            "start": msgspec.to_builtins(self.start),
        }


def format_path(path: str | Path) -> str:
    """Return a path as text for a response. Bytes that are not UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def check_workspace_name(name: str) -> None:
    """Raise if `name` is not valid as a branch, as a folder name and as a part of a URL."""
    if len(name) > MAX_NAME_LENGTH:
        raise _invalid_name(name, f"is longer than {MAX_NAME_LENGTH} characters")
    if not _NAME.match(name):
        raise _invalid_name(name, "must be letters, digits and any of - _ . /, and begin with a letter or digit")
    if ".." in name or "//" in name or name.endswith(("/", ".")) or "/." in name or "./" in name:
        raise _invalid_name(name, 'has an empty part, or a "." where git allows none')
    if any(part.endswith(".lock") for part in name.split("/")):
        raise _invalid_name(name, 'ends in ".lock", which git keeps for itself')
    if name == "HEAD" or any(len(part) > 80 for part in name.split("/")):
        raise _invalid_name(name, "is a name that git or the file system does not take")


def _invalid_name(name: str, why: str) -> RookeryError:
    label = name if len(name) <= MAX_NAME_LENGTH else name[:MAX_NAME_LENGTH] + "…"
    return RookeryError("invalid-input", f"{label!r} cannot be a workspace's name: it {why}", "choose another name")


def encode_folder_name(name: str) -> str:
    """Return the folder name for a workspace name. It is unique because "%" is not allowed in names."""
    return name.replace("/", "%")


def resolve_worktree_path(template: str, state: Path, project: Project, name: str) -> Path:
    """Return the path for a new worktree. A relative template starts at the main checkout of the project."""
    if not template:
        return project_state_folder(state, project) / "workspaces" / encode_folder_name(name)
    values = {"project": project.name, "id": project.id, "name": encode_folder_name(name)}
    if "{name}" not in template:
        raise RookeryError("invalid-input", f"worktrees.path has no {{name}}: {template}", "add {name} to it")
    expanded = re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), template)
    if unknown := re.search(r"\{\w+\}", expanded):
        allowed = ", ".join(f"{{{word}}}" for word in _PLACEHOLDERS)
        raise RookeryError("invalid-input", f"worktrees.path does not know {unknown[0]}", f"use {allowed}")
    return Path(project.path) / Path(expanded).expanduser()


def project_state_folder(state: Path, project: Project) -> Path:
    """Return the folder where Rookery keeps its state of a project."""
    return state / "projects" / project.id


def choose_unique_names(candidates: Sequence[Sequence[str]], taken: set[str]) -> list[str]:
    """Return a unique name for each list of candidates.

    Candidates are tried in order. If all are taken, a number is appended to the last one. The names are added to
    `taken`.
    """
    names: list[str] = []
    for names_to_try in candidates:
        numbered = (f"{names_to_try[-1]}-{number}" for number in count(2))
        name = next(name for name in chain(names_to_try, numbered) if name not in taken)
        taken.add(name)
        names.append(name)
    return names


class SessionCounts(msgspec.Struct, frozen=True):
    """The numbers of sessions of an agent, by state."""

    idle: int = 0
    busy: int = 0
    total: int = 0


class AgentStatus(msgspec.Struct, frozen=True):
    """The activity of the sessions of a workspace's agent, with the counts behind it."""

    type: Literal["none", "idle", "busy", "mixed"] = "none"
    counts: SessionCounts = SessionCounts()


class Need(msgspec.Struct, frozen=True):
    """A reason why an agent needs its user.

    `reason` is an identifier for programs, `id` that of the request or session concerned.
    """

    reason: str
    text: str
    id: str = ""


# The activity of the sessions of a workspace: no session was ever started; a first prompt waits to be sent; a session
# works; a session waits for the user; the last turn of a session failed; a session has finished since the user last
# looked; nothing is new.
AgentActivity = Literal["new", "queued", "working", "waiting", "failed", "finished", "idle"]


class AgentInfo(msgspec.Struct, frozen=True):
    """The process of an agent.

    `error` says why a process that should run does not, `detail` what a starting process waits for. `notes` list what
    does not work in it. `needs_restart` is set if its configuration has changed since the start. `activity` describes
    its sessions, and is set without a process too.
    """

    state: Literal["stopped", "starting", "running", "asleep", "restarting", "failed"] = "stopped"
    port: int | None = None
    pid: int | None = None
    error: str | None = None
    detail: str | None = None
    notes: tuple[str, ...] = ()
    needs_restart: bool = False
    attention: tuple[Need, ...] = ()
    activity: AgentActivity = "new"


class AgentSession(msgspec.Struct, frozen=True, rename="camel"):
    """The port of a workspace's agent, and the session that a client connects to."""

    port: int
    session_id: str


class AgentProvider(Protocol):
    """The operations on agents that workspaces need. Implemented by the package that runs agents."""

    async def status(self, workspace: Workspace) -> AgentStatus: ...

    async def process(self, workspace: Workspace) -> AgentInfo: ...

    async def port(self, workspace: Workspace) -> int | None:
        """Return the port that the agent listens on. A sleeping agent is woken."""
        ...

    async def session(self, workspace: Workspace) -> AgentSession | None: ...

    async def restart(self, workspace: Workspace) -> int:
        """Restart the agent on its previous port and return that port."""
        ...

    def check(self, prompt: str | None) -> None:
        """Raise, before a workspace is created, if no agent could process `prompt`."""
        ...

    def starts_agent(self, prompt: str | None) -> bool:
        """Return whether a workspace that is created with this prompt gets an agent immediately."""
        ...

    def has_agent(self, workspace: Workspace) -> bool:
        """Return whether an agent runs in a workspace or is about to start."""
        ...

    async def begin_workspace(self, workspace: Workspace, prompt: str | None) -> None:
        """Take on a new workspace. Its agent and the first prompt wait until the workspace is prepared."""
        ...

    async def wait_until_prompted(self, workspace: Workspace) -> None:
        """Wait until the first prompt is sent or held back. Raise if it cannot be sent."""
        ...

    def mark_seen(self, workspace: Workspace) -> None:
        """Record that the user looks at the workspace."""
        ...

    async def before_open(self, workspace: Workspace, *, agent: bool) -> None:
        """Record whether the agent starts with a workspace that is about to be opened; start it if it is open."""
        ...

    async def disable_agent(self, workspace: Workspace) -> None:
        """Keep agents out of this workspace until someone starts one explicitly."""
        ...
