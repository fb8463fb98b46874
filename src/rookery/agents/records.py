"""Agents as interfaces show them: process and sessions, output, access, and the installed OpenCode."""

from collections.abc import Mapping, Sequence

import msgspec

from rookery.agents.status import TurnState
from rookery.workspaces.model import AgentInfo, AgentStatus


class AgentAsk(msgspec.Struct, frozen=True):
    """A permission or a question that a session waits for."""

    id: str
    kind: str
    text: str


class AgentSessionRecord(msgspec.Struct, frozen=True):
    """A session of an agent. `detail` is the cause of a retry, `failure` the failure of its last turn."""

    id: str
    title: str
    state: TurnState
    detail: str
    asks: Sequence[AgentAsk]
    failure: str | None


class AgentReport(AgentInfo, frozen=True, kw_only=True):
    """The agent of a workspace: its process, the status of its sessions, and the sessions."""

    status: AgentStatus
    sessions: Sequence[AgentSessionRecord]


class ResumedAgent(AgentReport, frozen=True, kw_only=True):
    """An agent, with the ids of the sessions whose turns were resumed."""

    resumed: Sequence[str]


class DismissedAgent(AgentReport, frozen=True, kw_only=True):
    """An agent, with the ids of the sessions whose failed turns were dismissed."""

    dismissed: Sequence[str]


class AgentOutput(msgspec.Struct, frozen=True):
    """The last lines that an agent printed. `path` is the file with all of them."""

    path: str
    lines: Sequence[str]


class AgentAccess(msgspec.Struct, frozen=True):
    """What a client of OpenCode needs to connect to an agent, and the program to do it with.

    `session` is the session to open, if there is one. `folders` are the variables of the agent's folders.
    """

    url: str
    directory: str
    password: str
    opencode: str
    session: str | None
    folders: Mapping[str, str | None]


class InstallationRecord(msgspec.Struct, frozen=True):
    """The OpenCode that agents run, and the ripgrep that they search with."""

    version: str
    opencode: str
    ripgrep: str | None
