"""The tool history of all sessions: a failed agent does not hide the runs of others."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rookery.sessions.index import SessionIndex
from rookery.sessions.records import ToolRun
from rookery.sessions.service import ToolHistory
from rookery.system.errors import RookeryError
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


class FakeIndex:
    """One session that ran one tool, whose agent may not work; it is known only after it was waited for."""

    def __init__(self, id_: str, updated: float, works: bool, ran: float | None = None) -> None:
        self.works, self.is_known, self._used = works, False, ran or updated
        self._session = SimpleNamespace(id=id_, time=SimpleNamespace(updated=updated))
        run = ToolRun(id=f"of {id_}", session_id=id_, tool="read", input={}, status="completed", start=self._used)

        def messages(*, running: bool) -> list[Any]:
            return [SimpleNamespace(parts=[run])]

        async def read(session: Any) -> Any:
            return SimpleNamespace(messages=messages)

        self.transcripts = SimpleNamespace(transcript=read)

    def roots(self) -> list[Any]:
        return [self._session] if self.is_known else []

    def last_used(self) -> dict[str, float]:
        return {self._session.id: self._used}

    def is_running(self, id_: str) -> bool:
        return False

    @asynccontextmanager
    async def use_agent(self) -> AsyncGenerator[Any]:
        if not self.works:
            raise RookeryError("agent-unavailable", "it does not start")

        async def children(id_: str) -> list[Any]:
            return []

        yield SimpleNamespace(client=SimpleNamespace(children=children))


@requirement("session.history.get")
async def test_a_failed_agent_does_not_hide_tool_runs_of_others_unless_it_is_the_only_one() -> None:
    indexes = [FakeIndex("ses_1", 3, works=True), FakeIndex("ses_2", 2, works=False), FakeIndex("ses_3", 1, works=True)]

    async def known(indexes: list[FakeIndex]) -> None:
        for index in indexes:
            index.is_known = True

    def history(*seen: FakeIndex) -> ToolHistory:
        def visible(scope: object) -> list[FakeIndex]:
            return list(seen)

        return ToolHistory(cast(SessionIndex, SimpleNamespace(visible_to=visible, wait_until_known=known)))

    assert [one.id for one in await history(*indexes).all(None, 20)] == ["of ses_3", "of ses_1"]
    # A tool that was run by name leaves its session as old as it was.
    indexes[2] = FakeIndex("ses_3", 1, works=True, ran=4)
    assert [one.id for one in await history(*indexes).all(None, 1)] == ["of ses_3"]
    with pytest.raises(RookeryError, match="does not start"):
        await history(indexes[1]).all(None, 20)
