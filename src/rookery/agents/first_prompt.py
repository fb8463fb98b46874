"""The first prompt of a workspace: kept with it until it is sent, so that no end of the daemon loses it."""

import contextlib
from pathlib import Path

from rookery.agents.client import AgentClient
from rookery.agents.tail import last_lines
from rookery.system.errors import RookeryError
from rookery.system.files import read_plain, remove, write_secret
from rookery.workspaces.metadata import house
from rookery.workspaces.record import Workspace
from rookery.workspaces.setup import log_file

LONGEST = 1_000_000
_LOG_BYTES = 16_384
_LOG_LINES = 100


def check(prompt: str | None) -> None:
    """Refuse what is no prompt."""
    if prompt is not None and not prompt.strip():
        raise RookeryError("invalid-input", "the prompt is empty", "say what is to be done, or leave it out")
    if prompt is not None and len(prompt.encode("utf-8", "surrogatepass")) > LONGEST:
        raise RookeryError("invalid-input", f"the prompt is longer than {LONGEST} bytes", "put it into a file")


def keep(own: Path, prompt: str) -> None:
    """`own` is the workspace's git folder."""
    _file(own).parent.mkdir(exist_ok=True)
    write_secret(_file(own), prompt.encode("utf-8", "replace"))


def kept(own: Path) -> str | None:
    with contextlib.suppress(OSError):
        return read_plain(_file(own), LONGEST).decode("utf-8", "replace")
    return None


def forget(own: Path) -> None:
    remove(_file(own))


async def send(client: AgentClient, workspace: Workspace, own: Path, prompt: str) -> str:
    """Begin a session with it; answers the session. Where the preparation failed the agent is told, with the log."""
    await require_provider(client)
    session = await client.create_session()
    await client.prompt(session.id, _with_log(prompt, workspace, own))
    return session.id


async def require_provider(client: AgentClient) -> None:
    """Raise if there is no model that could answer; OpenCode itself takes any prompt and fails later."""
    found = await client.providers()
    if not any(one.models for one in found.providers):
        raise RookeryError(
            "agent-unavailable",
            "OpenCode has no model provider that can be used",
            "sign in to one: rookery agent login (opencode auth login)",
        )


def _with_log(prompt: str, workspace: Workspace, own: Path) -> str:
    if workspace.state != "failed":
        return prompt
    told = f"This workspace could not be prepared: {workspace.error}"
    if lines := last_lines(log_file(own), _LOG_LINES, _LOG_BYTES):
        told += "\n".join(["\n\nThe end of the setup command's log:\n\n```", *lines, "```"])
    return f"{told}\n\n{prompt}"


def _file(own: Path) -> Path:
    return house(own) / "first-prompt"
