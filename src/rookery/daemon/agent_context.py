"""What agents do and said last, as a part of a project's context."""

import asyncio

from rookery.agents.records import Message
from rookery.agents.service import AgentService
from rookery.agents.status import SessionState
from rookery.files.context.section import Section
from rookery.system.errors import RookeryError
from rookery.workspaces.record import Workspace

_SESSIONS, _MESSAGES = 3, 4
_LONGEST = 800
# Less than a source of context may take: a slow agent hides no other.
_SECONDS = 3.0


async def agent_sections(agents: AgentService, own: Workspace, *, siblings: bool) -> list[Section]:
    """Of the agent of a workspace and, with `siblings`, of the others of its project. None is woken for that."""
    found = [one for one in agents.workspaces() if one.project.id == own.project.id]
    wanted = [one for one in found if one.path == own.path or siblings]
    wanted.sort(key=lambda one: (one.path != own.path, one.name))
    sections = await asyncio.gather(*(_section(agents, one, 2 if one.path == own.path else 4) for one in wanted))
    return [one for one in sections if one is not None]


async def _section(agents: AgentService, workspace: Workspace, priority: int) -> Section | None:
    process = await agents.process(workspace)
    if process.state == "stopped":
        return None
    sessions = agents.sessions(workspace)
    head = [f"{process.state}{f': {process.error}' if process.error else ''}", *process.notes]
    head += [f"needs its user: {one.text}" for one in process.attention]
    told = await asyncio.gather(*(_session(agents, workspace, one) for one in sessions[:_SESSIONS]))
    lines = [*head, *(line for lines in told for line in lines)]
    if len(sessions) > _SESSIONS:
        lines.append(f"[{len(sessions) - _SESSIONS} more sessions]")
    key = f"agents/{workspace.name}"
    return Section(key, f"Agent of the workspace {workspace.name}", priority, "\n".join(lines) + "\n")


async def _session(agents: AgentService, workspace: Workspace, session: SessionState) -> list[str]:
    head = f"session {session.id} ({session.title}): {session.state}{f', {session.detail}' if session.detail else ''}"
    tenant = agents.tenants.get(workspace.path)
    life = tenant.agent.life if tenant is not None else None
    if life is None:
        return [head]
    try:
        async with asyncio.timeout(_SECONDS):
            messages = await life.client.messages(session.id, _MESSAGES)
    except TimeoutError:
        return [head, f"  its messages did not come within {_SECONDS:g} s"]
    except RookeryError as error:
        return [head, f"  its messages cannot be told: {error.message}"]
    return [head, *(line for one in messages if (line := _message(one)))]


def _message(message: Message) -> str:
    """In one line; what a message is about mostly stands at its end."""
    text = " ".join(message.text.split())
    if message.info.error is not None:
        text = f"{text} [failed: {message.info.error.message}]".strip()
    tools = [part.tool for part in message.parts if part.type == "tool" and part.tool]
    used = f" [used {', '.join(dict.fromkeys(tools))}]" if tools else ""
    cut = f"… {text[-_LONGEST:]}" if len(text) > _LONGEST else text
    return f"  {message.info.role}: {cut}{used}" if cut or used else ""
