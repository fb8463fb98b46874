"""How sessions begin and end, in playbooks of clients without a connection."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rookery.system.tasks import TaskSet
from rookery.wire.protocol.messages import (
    INVALID_REQUEST,
    Request,
    WireError,
    decode_messages,
    decode_object,
    encode_result,
)
from rookery.wire.server.endpoint import Endpoint
from rookery.wire.server.session import Sessions
from rookery.wire.shares import ShareLimits, Shares
from tests.conformance.busy import WATCHED, Busy
from tests.support.mcp.conversation import Conversation, ConversationClient, start_conversation
from tests.support.mcp.conversation_messages import answer, call, cancel, error, refusal, result, told
from tests.support.mcp.line_client import hello, message
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio
PING = message("ping", {}, "ping")
PONG = answer("ping", {})
GONE = error("ping", INVALID_REQUEST, "no such session")


class Visitor(ConversationClient):
    """Speaks as over HTTP: each message comes by itself, with the id of the session."""

    def __init__(self, stage: Conversation, tasks: TaskSet, owner: str) -> None:
        super().__init__(self._arrive)
        self.session = ""
        self._stage, self._tasks, self._owner = stage, tasks, owner

    async def _arrive(self, data: bytes) -> None:
        (found,) = decode_messages(data)
        if isinstance(found, Request):
            self._tasks.start(self._serve(found), found.method)
        elif (session := self._stage.sessions.find(self.session, self._owner)) is not None:
            session.handle(found)

    async def _serve(self, request: Request) -> None:
        try:
            await self.hear(await self._answer(request))
        except WireError as refused:
            await self.hear(refused.encode(request.id))

    async def _answer(self, request: Request) -> bytes:
        if request.method == "initialize":
            session, agreed = self._stage.sessions.open(decode_object(request.params), self._owner)
            self.session = session.id
            return encode_result(request.id, msgspec.json.encode(agreed))
        session = self._stage.sessions.find(self.session, self._owner)
        if session is None:
            raise WireError(INVALID_REQUEST, "there is no such session")
        return await self._stage.service.handshake(session, request, self.hear, self.hear, lambda: False)

    def leave(self) -> None:
        session = self._stage.sessions.find(self.session, self._owner)
        assert session is not None
        self._stage.sessions.close(session)


class Sitting:
    """A stage with visitors, whose sessions last a minute; `ended` has those that have ended."""

    def __init__(self, stage: Conversation, tasks: TaskSet, ended: list[Any]) -> None:
        self.stage, self.ended = stage, ended
        self._tasks = tasks

    def visitor(self, owner: str = "owner") -> Visitor:
        return Visitor(self.stage, self._tasks, owner)

    def at(self, second: float) -> Any:
        def time_goes_by() -> None:
            self.stage.clock.now = second

        return time_goes_by


@asynccontextmanager
async def sitting(provider: Busy, cap: int = 100) -> AsyncGenerator[Sitting]:
    ended: list[Any] = []
    tasks = TaskSet("visits")
    async with start_conversation(provider, cap=cap, idle_seconds=60, on_end=ended.append) as stage:
        yield Sitting(stage, tasks, ended)
    await tasks.close()


@requirement("wire.http.session")
async def test_a_session_that_is_used_stays_and_an_idle_one_is_gone_after_its_time() -> None:
    async with sitting(Busy()) as site:
        assert await (
            site.visitor()
            >> hello()
            << result("hello")
            >> site.at(59)
            >> PING
            << PONG
            >> site.at(118)
            >> PING
            << PONG
            >> site.at(178)
            >> PING
            << GONE
            >> hello()
            << result("hello")
            >> PING
            << PONG
        )
        assert len(site.ended) == 1


@requirement("wire.http.session")
async def test_a16_a_session_does_not_expire_during_a_call_and_has_its_full_time_after() -> None:
    provider = Busy()
    async with sitting(provider) as site:
        busy, other = site.visitor(), site.visitor()
        assert await (busy >> hello() << result("hello") >> call(1, "hang") << told("progress"))
        assert await (other >> hello() << result("hello") >> site.at(61) >> PING << GONE)
        assert await (other >> hello() << result("hello") >> site.at(10_000) >> PING << GONE)
        assert (provider.cancelled, len(site.stage.sessions)) == (0, 1)
        assert await (busy >> cancel(1) << error(1, -32800) >> site.at(10_059) >> PING << PONG)
        assert await (busy >> site.at(10_119) >> PING << GONE)
        assert len(site.ended) == 3


async def test_a17_an_id_that_is_in_use_in_a_session_is_refused_whatever_brings_it() -> None:
    async with sitting(Busy()) as site:
        first, same, other = site.visitor(), site.visitor(), site.visitor()
        assert await (first >> hello() << result("hello") >> call(1, "hang") << told("progress"))
        same.session = first.session
        assert await (same >> call(1, "hang") << error(1, -32600, "in use"))
        assert await (other >> hello() << result("hello") >> call(1, "hang") << told("progress"))


async def test_a_session_with_an_open_connection_is_not_idle() -> None:
    async with sitting(Busy()) as site:
        connected = site.stage.client()
        assert await (connected >> hello() << result("hello"))
        assert await (site.visitor() >> site.at(1_000) >> hello() << result("hello"))
        assert await (connected >> PING << PONG)
        assert site.ended == []


@requirement("wire.http.session")
async def test_a16_idle_sessions_make_room_never_used_ones_first_and_busy_ones_do_not() -> None:
    async with sitting(Busy(), cap=2) as site:
        used, unused, third, fourth = (site.visitor() for _ in range(4))
        assert await (used >> hello() << result("hello"))
        assert await (unused >> site.at(1) >> hello() << result("hello"))
        assert await (used >> site.at(2) >> PING << PONG)
        assert await (third >> site.at(3) >> hello() << result("hello") >> site.at(4) >> PING << PONG)
        assert await (unused >> PING << GONE)
        assert await (fourth >> site.at(5) >> hello() << result("hello") >> site.at(6) >> PING << PONG)
        assert await (used >> PING << GONE)
        assert await (third >> call(1, "hang") << told("progress"))
        assert await (fourth >> call(1, "hang") << told("progress"))
        assert await (used >> hello() << error("hello", -32000, "2 sessions"))
        assert await (fourth >> cancel(1) << error(1, -32800) >> fourth.leave)
        assert await (used >> hello() << result("hello"))


@requirement("house.limits.shares")
async def test_a16_sessions_of_one_workspace_make_room_for_its_own_alone() -> None:
    """Wherever they are: the shares count over all endpoints."""
    shares = Shares(ShareLimits(sessions=2))
    params = {"protocolVersion": Raw(b'"2025-06-18"')}
    one, other = (Sessions(Busy(), shares=shares) for _ in range(2))
    owners = [one.open(params, "owner")[0] for _ in range(3)]
    neighbour = other.open(params, "workspace /b")[0]
    first, second = one.open(params, "workspace /a")[0], other.open(params, "workspace /a")[0]
    third = other.open(params, "workspace /a")[0]
    assert (first.ended, second.ended, third.ended) == (True, False, False)
    assert not neighbour.ended
    assert not any(session.ended for session in owners)
    for sessions in (one, other):
        sessions.close_all()
    assert shares.sessions == {}


async def test_a18_a_session_of_another_credential_is_not_found_nor_kept_alive() -> None:
    async with sitting(Busy()) as site:
        mine, thief = site.visitor(), site.visitor("another")
        assert await (mine >> hello() << result("hello"))
        thief.session = mine.session
        assert await (thief >> site.at(50) >> PING << GONE >> cancel(1))
        assert await (mine >> site.at(60) >> PING << GONE)


async def test_the_end_of_a_session_is_reported_once_and_ends_all_that_belongs_to_it() -> None:
    provider = Busy()
    subscribe = message("resources/subscribe", {"uri": WATCHED}, 1)
    async with sitting(provider) as site:
        leaving, expiring, staying, connected = site.visitor(), site.visitor(), site.visitor(), site.stage.client()
        for client in (leaving, expiring, staying, connected):
            assert await (client >> hello() << result("hello") >> subscribe << answer(1, {}))
        hanging = call(2, "hang"), told("progress")
        for client in (leaving, staying, connected):
            assert await (client >> hanging[0] << hanging[1])
        assert await (leaving >> leaving.leave << error(2, -32800))
        assert await (staying >> site.at(70) >> PING << PONG)
        assert [session.id for session in site.ended] == [leaving.session, expiring.session]
        await site.stage.peers[connected].end(lost=True)
        assert (len(site.ended), provider.changes.watched) == (3, {WATCHED})
        assert await (staying >> site.stage.service.close << refusal(2, -32000, "shutting down"))
        assert site.ended[-1].id == staying.session
        assert provider.cancelled == 3
    assert len(site.ended) == 4 == len({session.id for session in site.ended})


async def test_an_endpoint_hands_on_who_wants_to_hear_of_ended_sessions() -> None:
    ended: list[object] = []
    endpoint = Endpoint(Busy(), on_session_end=ended.append)
    session, _ = endpoint.service.sessions.open(decode_object(msgspec.Raw(b'{"protocolVersion":""}')), "owner")
    endpoint.close()
    endpoint.close()
    assert ended == [session]
