"""A watcher with the real OpenCode: states of sessions are correct after disconnects, kills and aborts."""

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest

from rookery.agents.opencode.events import TurnFailed
from rookery.system.errors import RookeryError
from rookery.system.process.spawn import Spawner
from rookery.testing.model import scripted_model
from tests.support.agents.watcher import (
    LIMIT,
    make_script,
    open_shared_client,
    start_agent_client,
    start_watcher,
    through_proxy,
)
from tests.support.http.listener import within_limit
from tests.support.opencode.home import OpenCodeHome
from tests.support.opencode.shared import SharedOpenCode
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

RUN = {"call": "bash", "with": {"command": "echo ran", "description": "run"}}
ASKS = {"permission": {"bash": "ask"}}
SCRIPT = make_script(
    hello=[{"say": "hello yourself"}],
    hold=[{"say": "at last", "hold": "one"}],
    wait=[{"say": "never", "hold": "two"}],
    run=[RUN, {"say": "it ran"}],
    busy=[{"error": 503, "message": "overloaded, try again later", "times": 1}, {"say": "now"}],
    refuse=[{"error": 400, "message": "no such model"}],
    delegate=[
        {"call": "task", "with": {"description": "d", "prompt": "run", "subagent_type": "general"}},
        {"say": "done by another"},
    ],
    cut=[{"say": "taken up again"}],
)
CALLS = 30


def told(watched: object) -> object:
    return msgspec.to_builtins(watched)


@requirement("agent.status.values")
async def test_the_status_follows_the_sessions(shared_opencode: SharedOpenCode, tmp_path: Path) -> None:
    async with (
        scripted_model(SCRIPT) as model,
        open_shared_client(shared_opencode, tmp_path, model, ASKS) as client,
        start_watcher(client) as seen,
    ):
        watcher = seen.watcher
        assert told(watcher.status) == {"type": "none", "counts": {"idle": 0, "busy": 0, "total": 0}}
        first = (await client.create_session(title="first")).id
        await seen.until_is(first, "idle")
        assert told(watcher.status) == {"type": "idle", "counts": {"idle": 1, "busy": 0, "total": 1}}
        await client.prompt(first, "hold")
        await seen.until_is(first, "busy")
        assert told(watcher.status) == {"type": "busy", "counts": {"idle": 0, "busy": 1, "total": 1}}
        second = (await client.create_session(title="second")).id
        await client.create_session(title="a child", parent=second)
        await seen.until_is(second, "idle")
        assert told(watcher.status) == {"type": "mixed", "counts": {"idle": 1, "busy": 1, "total": 2}}
        assert watcher.running == {first}

        await client.prompt(second, "run")
        await seen.until_is(second, "asking")
        waiting = seen.of(second)
        assert waiting.asks[0].text == "bash: echo ran"
        assert told(watcher.status) == {"type": "mixed", "counts": {"idle": 1, "busy": 1, "total": 2}}
        await client.answer_permission(waiting.asks[0].id, "once")
        await seen.until_is(second, "idle")
        assert not seen.of(second).asks
        model.release("one")
        await seen.until_is(first, "idle")
        assert told(watcher.status) == {"type": "idle", "counts": {"idle": 2, "busy": 0, "total": 2}}

        await client.prompt(first, "refuse")
        await seen.until(lambda _: any(isinstance(one, TurnFailed) for one in seen.events))
        await seen.until_is(first, "idle")
        await client.delete_session(second)
        await seen.until(lambda _: second not in seen.states())
        assert (await client.messages(first))[-1].info.error is not None


@requirement("agent.status.values")
async def test_what_a_child_asks_keeps_its_root_waiting_and_a_failing_model_is_told(
    shared_opencode: SharedOpenCode, tmp_path: Path
) -> None:
    async with (
        scripted_model(SCRIPT) as model,
        open_shared_client(shared_opencode, tmp_path, model, ASKS) as client,
        start_watcher(client) as seen,
    ):
        root = (await client.create_session(title="root")).id
        await client.prompt(root, "delegate")
        await seen.until_is(root, "asking")
        (ask,) = seen.of(root).asks
        assert ask.session != root
        assert list(seen.states()) == [root]
        # Whoever comes now reads the same.
        async with start_watcher(client) as late:
            assert late.watcher.sessions == seen.watcher.sessions
        await client.answer_permission(ask.id, "once")
        await seen.until_is(root, "idle")
        assert (await client.messages(root))[-1].text == "done by another"

        await client.prompt(root, "busy")
        await seen.until_is(root, "retry")
        assert "overloaded" in seen.of(root).detail
        assert seen.watcher.status.type == "busy"
        await seen.until_is(root, "idle")


async def test_an_aborted_turn_waits_for_nothing_also_for_whoever_reads_it_later(
    shared_opencode: SharedOpenCode, tmp_path: Path
) -> None:
    async with (
        scripted_model(SCRIPT) as model,
        open_shared_client(shared_opencode, tmp_path, model, ASKS) as client,
        start_watcher(client) as seen,
    ):
        session = (await client.create_session(title="x")).id
        await client.prompt(session, "run")
        await seen.until_is(session, "asking")
        await client.abort(session)
        await seen.until_is(session, "idle")
        await client.prompt(session, "hold")
        await seen.until_is(session, "busy")
        # OpenCode still lists what the aborted turn asked.
        assert [one.session for one in await client.permissions()] == [session]
        async with start_watcher(client) as late:
            assert late.states() == seen.states() == {session: "busy"}
        await client.abort(session)
        await seen.until_is(session, "idle")


async def test_a_folder_that_is_disposed_of_ends_its_turns_and_is_watched_on(
    shared_opencode: SharedOpenCode, tmp_path: Path
) -> None:
    """More sessions than OpenCode lists without being told how many; and its stream ends with the folder's instance."""
    async with (
        scripted_model(SCRIPT) as model,
        open_shared_client(shared_opencode, tmp_path, model) as client,
        start_watcher(client) as seen,
    ):
        made = await asyncio.gather(*(client.create_session(title=str(one)) for one in range(120)))
        sessions = [one.id for one in made]
        await client.prompt(sessions[0], "hold")
        await seen.until_is(sessions[0], "busy")
        assert told(seen.watcher.status) == {"type": "mixed", "counts": {"idle": 119, "busy": 1, "total": 120}}
        await client.dispose()
        await seen.until(lambda watcher: watcher.error is not None)
        await seen.until(lambda watcher: watcher.error is None)
        assert told(seen.watcher.status) == {"type": "idle", "counts": {"idle": 120, "busy": 0, "total": 120}}
        assert set(seen.states().values()) == {"idle"}
        await client.prompt(sessions[1], "hold")
        await seen.until_is(sessions[1], "busy")
        model.release("one")
        await seen.until_is(sessions[1], "idle")


@requirement("agent.restart.policy")
async def test_f02_a_turn_that_ends_while_the_stream_is_cut_is_not_missed(
    shared_opencode: SharedOpenCode, tmp_path: Path
) -> None:
    async with (
        scripted_model(SCRIPT) as model,
        open_shared_client(shared_opencode, tmp_path, model, ASKS) as client,
        through_proxy(client) as (proxy, distant),
        start_watcher(distant) as seen,
    ):
        ends, asks, goes = [(await client.create_session(title=name)).id for name in ("ends", "asks", "goes")]
        await client.prompt(ends, "hold")
        await client.prompt(asks, "run")
        await seen.until_is(ends, "busy")
        await seen.until_is(asks, "asking")

        await proxy.cut()
        await seen.until(lambda watcher: watcher.error is not None)
        assert seen.states() == {ends: "busy", asks: "asking", goes: "idle"}
        made = (await client.create_session(title="made")).id
        model.release("one")
        await client.answer_permission(seen.of(asks).asks[0].id, "once")
        await client.delete_session(goes)
        await client.prompt(made, "wait")
        async with start_watcher(client) as direct:
            await direct.until(lambda _: direct.states() == {made: "busy", ends: "idle", asks: "idle"})
        await proxy.mend()
        await seen.until(lambda _: seen.states() == {made: "busy", ends: "idle", asks: "idle"})
        assert seen.watcher.error is None
        # And events come again.
        await client.abort(made)
        await seen.until_is(made, "idle")


@requirement("agent.restart.policy")
async def test_f02_a_stream_that_breaks_again_and_again_leads_to_the_same_end(
    shared_opencode: SharedOpenCode, tmp_path: Path
) -> None:
    """Turns begin and end all the time, while every connection breaks as soon as everything has been read."""
    async with (
        scripted_model(SCRIPT) as model,
        open_shared_client(shared_opencode, tmp_path, model) as client,
        through_proxy(client) as (proxy, distant),
        start_watcher(distant) as seen,
    ):
        sessions = [(await client.create_session(title=str(one))).id for one in range(3)]

        async def turns(session: str) -> None:
            for _ in range(CALLS // 3):
                assert (await client.send(session, "hello", seconds=LIMIT)).text == "hello yourself"

        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
            working = [group.create_task(turns(one)) for one in sessions]
            while not all(one.done() for one in working):
                proxy.jolt()
                await seen.until(lambda watcher: watcher.error is not None)
                await seen.until(lambda watcher: watcher.error is None)
        await seen.until(lambda _: seen.states() == dict.fromkeys(sessions, "idle"))
        assert not {state for states in seen.history for state in states.values()} - {"idle", "busy"}


@requirement("agent.crash.interrupted")
async def test_d15_turns_that_ran_when_opencode_was_killed_are_interrupted_and_resumable(tmp_path: Path) -> None:
    home = OpenCodeHome.make(tmp_path / "home")
    folder = tmp_path / "日本"
    folder.mkdir()
    async with scripted_model(SCRIPT) as model:
        spawner = Spawner("test")
        async with (
            start_agent_client(folder, model, config=ASKS, home=home, spawner=spawner) as client,
            start_watcher(client) as seen,
        ):
            names = ("whole", "speaks", "asks", "aborted")
            whole, speaks, asks, aborted = [(await client.create_session(title=name)).id for name in names]
            await client.send(whole, "hello")
            for session, text in ((speaks, "hold"), (asks, "run"), (aborted, "wait")):
                await client.prompt(session, text)
            await seen.until_is(speaks, "busy")
            await seen.until_is(aborted, "busy")
            await seen.until_is(asks, "asking")
            for text in ("hold", "run", "wait"):
                await within_limit(model.requests.wait_for(lambda record, text=text: record.user == text))
            await client.abort(aborted)
            await seen.until_is(aborted, "idle")
            (child,) = spawner.children
            os.kill(child.pid, signal.SIGKILL)
            await seen.until(lambda watcher: watcher.error is not None)
            ran = seen.watcher.running
            assert ran == {speaks, asks}
        async with start_agent_client(folder, model, config=ASKS, home=home) as client:
            async with start_watcher(client, were_running=ran) as seen:
                wanted = {whole: "idle", aborted: "idle", speaks: "interrupted", asks: "interrupted"}
                assert seen.states() == wanted
                assert told(seen.watcher.status) == {"type": "idle", "counts": {"idle": 4, "busy": 0, "total": 4}}
                for session in (whole, "ses_nix"):
                    with pytest.raises(RookeryError):
                        await seen.watcher.resume(session)
                # Whoever has not seen it run reads the same from the messages.
                async with start_watcher(client) as other:
                    assert other.states() == wanted

                await seen.watcher.resume(asks)
                await seen.until_is(asks, "idle")
                assert (await client.messages(asks))[-1].text == "taken up again"
                assert seen.states()[speaks] == "interrupted"
            async with start_watcher(client) as late:
                assert late.states() == {**wanted, asks: "idle"}
