"""The conversations of agents, as far as the gateway has to know them.

An agent has one connection for all its sessions. A call that names its session can be asked about in that session, and
what is switched off there is refused to it.
"""

import asyncio
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from rookery.wire.protocol.provider import Call, report_progress

# What a program lists for all its conversations.
ALL_CONVERSATIONS = "*"
# Agents abort a call that shows no progress for as long as a tool may take, which may be less than the user needs.
_PROGRESS_SECONDS = 0.5


class Conversations(Protocol):
    """The sessions of the agents of all workspaces. A conversation is a session with those that work for it."""

    async def find_root(self, workspace: Path, session: str) -> str | None:
        """Return the conversation that a session belongs to; None if the agent of the workspace has no such session."""
        ...

    def ask(
        self, workspace: Path, session: str, root: str, tool: str, server: str, arguments: str
    ) -> AbstractContextManager["asyncio.Future[str]"]:
        """Ask the owner, until the end of the block, whether a session of the conversation `root` may call a tool.

        The result is why it may not, empty if it may.
        """
        ...


async def ask_in_session(call: Call, reply: "asyncio.Future[str]", seconds: float) -> str:
    """Wait for the reply to an ask, and report progress meanwhile. Raise TimeoutError if there is none."""
    async with asyncio.timeout(seconds):
        step = 0
        while not (await asyncio.wait([reply], timeout=_PROGRESS_SECONDS))[0]:
            step += 1
            await report_progress(call, step, message="waits for the user's permission: rookery session asks")
    return reply.result()
