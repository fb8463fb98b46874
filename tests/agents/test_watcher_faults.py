"""A watcher with an OpenCode that responds late, wrongly, not at all, or in the middle of a change."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from rookery.agents.opencode.api import AgentClient
from rookery.agents.opencode.events import AgentEvent
from rookery.wire.http_client.client import HttpClient
from tests.support.agents.watcher import WatcherRecorder, start_watcher
from tests.support.mcp.client import HttpRequest, HttpResponder, ScriptedHttpServer, within_limit
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

HERE = "/work/日本"
USER = {"info": {"id": "m1", "role": "user"}}
HALF = {"info": {"id": "m2", "role": "assistant"}}
WHOLE = {"info": {"id": "m3", "role": "assistant", "finish": "stop", "time": {"completed": 2}}}

Hook = Callable[["Fake"], Awaitable[None]]


class Fake:
    """As much of OpenCode as a watcher asks for. `before` runs before a path is answered, once."""

    def __init__(self) -> None:
        self.sessions = dict[str, dict[str, Any]]()
        self.messages = dict[str, list[Any]]()
        self.doing = dict[str, Any]()
        self.asks = list[Any]()
        self.streams = list[HttpResponder]()
        self.before = dict[str, Hook]()
        self.wrong = dict[str, int]()
        self.mute = False
        self.paths = list[str]()

    def add(self, id_: str, *messages: Any, updated: int = 1, parent: str | None = None) -> None:
        self.sessions[id_] = {"id": id_, "directory": HERE, "parentID": parent, "time": {"updated": updated}}
        self.messages[id_] = list(messages)

    async def say(self, type_: str, **properties: Any) -> None:
        await self.streams[-1].event({"type": type_, "properties": properties})

    async def does(self, id_: str, type_: str) -> None:
        await self.say("session.status", sessionID=id_, status={"type": type_})

    async def __call__(self, asked: HttpRequest, out: HttpResponder) -> None:
        path = urlsplit(asked.path).path
        self.paths.append(path)
        if hook := self.before.pop(path, None):
            await hook(self)
        if self.mute:
            await out.left()
        elif status := self.wrong.pop(path, 0):
            await out.json({"name": "UnknownError", "data": {"message": f"no {path}"}}, status)
        elif path == "/event":
            self.streams.append(out)
            await out.stream()
            await self.say("server.connected")
            await out.left()
        else:
            limit = int(parse_qs(urlsplit(asked.path).query).get("limit", ["100"])[0])
            answer = self._answer(path, limit)
            await out.json(
                answer if answer is not None else {"name": "NotFoundError"}, 200 if answer is not None else 404
            )

    def _answer(self, path: str, limit: int) -> Any:
        match path.split("/")[1:]:
            case ["session"]:
                return [one for one in self.sessions.values() if one["parentID"] is None]
            case ["session", "status"]:
                return self.doing
            case ["permission"]:
                return self.asks
            case ["question"]:
                return []
            case ["session", id_]:
                return self.sessions.get(id_)
            case ["session", id_, "message"]:
                found = self.messages.get(id_)
                return found and found[-limit:]
            case _:
                return None


@asynccontextmanager
async def watched(fake: Fake, **options: Any) -> AsyncGenerator[tuple[WatcherRecorder, ScriptedHttpServer]]:
    async with ScriptedHttpServer(fake) as server, HttpClient() as http:
        client = AgentClient(http, f"http://127.0.0.1:{server.port}", Path(HERE), "x")
        async with start_watcher(client, **options) as seen:
            yield seen, server


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After how many failures each pause was; none of them takes any time."""
    found = list[int]()

    def pause(failures: int) -> float:
        found.append(failures)
        return 0.0

    monkeypatch.setattr("rookery.agents.watcher.compute_backoff", pause)
    return found


async def again(seen: WatcherRecorder, fake: Fake) -> None:
    """Break the stream, and wait until everything has been read once more."""
    fake.streams[-1].reset()
    await seen.until(lambda watcher: watcher.error is not None)
    await seen.until(lambda watcher: watcher.error is None)


# ---- what happens while everything is read


@requirement("agent.restart.policy")
async def test_f02_what_is_said_while_the_state_is_read_counts() -> None:
    fake = Fake()
    for id_ in ("ses_a", "ses_b"):
        fake.add(id_)
    fake.doing = {"ses_b": {"type": "busy"}}

    async def change(fake: Fake) -> None:
        """After what each does was read: one begins, the other ends, and a third comes."""
        await fake.does("ses_a", "busy")
        await fake.does("ses_b", "idle")
        fake.add("ses_c")
        await fake.say("session.created", info=fake.sessions["ses_c"])

    fake.before["/permission"] = change
    async with watched(fake) as (seen, _):
        wanted = {"ses_a": "busy", "ses_b": "idle", "ses_c": "idle"}
        await seen.until(lambda _: seen.states() == wanted)
        assert fake.paths.count("/event") == 1


async def test_a_session_that_is_deleted_while_it_is_read_is_no_trouble() -> None:
    fake = Fake()
    for id_ in ("ses_a", "ses_b", "ses_child"):
        fake.add(id_, parent="ses_a" if id_ == "ses_child" else None)
    fake.doing = {"ses_child": {"type": "busy"}, "ses_a": {"type": "busy"}}
    fake.asks = [{"id": "per_1", "sessionID": "ses_child", "permission": "bash", "tool": {"messageID": "m2"}}]

    async def delete(fake: Fake) -> None:
        for id_ in ("ses_b", "ses_child"):
            del fake.sessions[id_], fake.messages[id_]
            await fake.say("session.deleted", info={"id": id_})

    fake.before["/question"] = delete
    async with watched(fake) as (seen, _):
        await seen.until(lambda _: seen.states() == {"ses_a": "busy"})
        assert seen.watcher.error is None


# ---- failures


@requirement("agent.restart.policy")
async def test_what_cannot_be_read_is_read_again_after_growing_pauses(pauses: list[int]) -> None:
    fake = Fake()
    fake.add("ses_a")
    paths = ["/event", "/session", "/session/status", "/permission", "/question", "/session/ses_a/message"]
    fake.wrong = dict.fromkeys(paths, 500)
    async with watched(fake) as (seen, _):
        assert seen.states() == {"ses_a": "idle"}
        assert seen.watcher.error is None
    assert pauses == list(range(1, len(paths) + 1))
    assert fake.paths.count("/event") == len(paths) + 1


async def test_d15_an_agent_that_hangs_is_in_trouble_until_it_answers_again(pauses: list[int]) -> None:
    fake = Fake()
    fake.add("ses_a")
    async with watched(fake, silence=0.3) as (seen, _):
        fake.mute = True
        await seen.until(lambda watcher: watcher.error is not None and watcher.error.code == "timeout")
        assert seen.states() == {"ses_a": "idle"}
        fake.doing, fake.mute = {"ses_a": {"type": "busy"}}, False
        await seen.until_is("ses_a", "busy")
        assert len(pauses) >= 1


async def test_d15_an_agent_that_is_gone_is_in_trouble_and_is_found_when_it_is_back(pauses: list[int]) -> None:
    fake = Fake()
    fake.add("ses_a")
    async with watched(fake) as (seen, server):
        await server.stop()
        await seen.until(lambda watcher: watcher.error is not None)
        assert seen.watcher.error is not None
        assert seen.watcher.error.code == "agent-unavailable"
        fake.add("ses_b")
        await server.start()
        await seen.until(lambda _: seen.states() == {"ses_a": "idle", "ses_b": "idle"})
        assert seen.watcher.error is None


def stumble(event: AgentEvent) -> None:
    raise ZeroDivisionError


async def test_a_listener_that_fails_does_not_end_the_watching(
    pauses: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    fake = Fake()
    fake.add("ses_a")
    async with watched(fake) as (seen, _):
        heard, seen.watcher._on_event = seen.watcher._on_event, stumble
        fake.doing = {"ses_a": {"type": "busy"}}
        await fake.does("ses_a", "busy")
        await seen.until(lambda watcher: watcher.error is not None and watcher.error.code == "internal-error")
        seen.watcher._on_event = heard
        await seen.until(lambda watcher: watcher.error is None)
        assert seen.states() == {"ses_a": "busy"}
    assert "ZeroDivisionError" in caplog.text


async def test_a_watcher_that_is_closed_leaves_nothing_behind() -> None:
    fake = Fake()
    reading = asyncio.Event()

    async def hang(fake: Fake) -> None:
        reading.set()
        await asyncio.Event().wait()

    fake.before["/permission"] = hang
    async with ScriptedHttpServer(fake) as server, HttpClient() as http:
        client = AgentClient(http, f"http://127.0.0.1:{server.port}", Path(HERE), "x")
        seen = WatcherRecorder(client)
        seen.watcher.start()
        await within_limit(reading.wait())
        await within_limit(seen.watcher.close())
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("agent")]
        assert not seen.history


# ---- turns that were cut off


@requirement("agent.crash.interrupted")
async def test_interrupted_turns_are_found_and_only_changed_messages_are_read_again(pauses: list[int]) -> None:
    fake = Fake()
    fake.add("ses_half", USER, HALF)
    fake.add("ses_queued", USER, HALF, USER)
    fake.add("ses_whole", USER, WHOLE)
    fake.add("ses_busy", USER, HALF)
    fake.doing = {"ses_busy": {"type": "busy"}}
    async with watched(fake) as (seen, _):
        cut_off = {"ses_half": "interrupted", "ses_queued": "interrupted"}
        assert seen.states() == {**cut_off, "ses_whole": "idle", "ses_busy": "busy"}
        await again(seen, fake)
        # A verdict of interrupted is confirmed by a second read.
        assert fake.paths.count("/session/ses_half/message") == 2
        assert fake.paths.count("/session/ses_whole/message") == 1
        # What was used since is read again.
        fake.add("ses_whole", USER, HALF, updated=2)
        await again(seen, fake)
        assert seen.states()["ses_whole"] == "interrupted"
        assert fake.paths.count("/session/ses_half/message") == 2


@pytest.mark.parametrize("ends", [False, True])
async def test_f02_a_turn_that_begins_while_messages_are_read_is_not_interrupted(ends: bool) -> None:
    fake = Fake()
    fake.add("ses_a", USER, WHOLE)

    async def begin(fake: Fake) -> None:
        fake.messages["ses_a"] += [USER, HALF]
        fake.doing = {"ses_a": {"type": "busy"}}
        if ends:
            fake.before["/session/status"] = end

    async def end(fake: Fake) -> None:
        fake.messages["ses_a"][-1] = WHOLE
        fake.doing = {}

    fake.before["/session/ses_a/message"] = begin
    async with watched(fake) as (seen, _):
        assert [states["ses_a"] for states in seen.history] == ["idle" if ends else "busy"]


@requirement("agent.crash.interrupted")
async def test_a_prompt_that_was_never_answered_is_interrupted_only_if_it_was_seen_to_run() -> None:
    fake = Fake()
    fake.add("ses_ran", USER)
    fake.add("ses_told", USER)
    async with watched(fake, were_running={"ses_ran"}) as (seen, _):
        assert seen.states() == {"ses_ran": "interrupted", "ses_told": "idle"}


async def test_all_sessions_are_followed_but_only_the_latest_have_their_messages_read() -> None:
    fake = Fake()
    for one in reversed(range(500)):
        fake.add(f"ses_{one}", USER, HALF if one == 490 else WHOLE, updated=one)
    async with watched(fake) as (seen, _):
        assert seen.watcher.status.counts.total == 500
        assert [id_ for id_, state in seen.states().items() if state == "interrupted"] == ["ses_490"]
        assert sum(path.endswith("/message") for path in fake.paths) <= 51
        for one in range(500):
            await fake.does(f"ses_{one}", "busy")
        await seen.until(lambda watcher: watcher.status.counts.busy == 500)
        assert seen.watcher.status.type == "busy"
        assert next(iter(seen.states())) == "ses_499"
