"""The first OpenCode on a data folder runs alone until it listens: two that set one up at once break each other."""

import contextlib
import hashlib
from collections.abc import AsyncGenerator
from pathlib import Path

from rookery.agents.alone import alone


@contextlib.asynccontextmanager
async def first_start_alone(state: Path, data: Path, version: str) -> AsyncGenerator[None]:
    """Hold back the other starts on `data`, OpenCode's database, until this one has been set up by this version.

    The lock lies beside the data, since Rookerys with other state folders may use the same.
    """
    known = hashlib.sha256(f"{data}\n{version}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
    mark = state / "opencode" / "listened" / known

    def is_set_up() -> bool:
        return mark.exists() and data.exists()

    if is_set_up():
        yield
        return
    async with contextlib.AsyncExitStack() as held:
        await held.enter_async_context(alone(data.with_name(".rookery-first-start.lock"), f"OpenCode {version}"))
        if is_set_up():
            await held.aclose()
        yield
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch()
