"""What the service asks of whoever runs a tool by its name."""

from collections.abc import Mapping
from typing import Any, Protocol

from rookery.agents.life import Life
from rookery.sessions.records import Progress, ToolRun


class Executor(Protocol):
    """Whoever runs a tool of an agent by its name, as `executing.py` does."""

    async def execute(
        self,
        life: Life,
        session_id: str,
        tool: str,
        args: Mapping[str, Any],
        *,
        wait: bool = True,
        timeout: float = 30.0,
        progress: Progress | None = None,
    ) -> ToolRun: ...
