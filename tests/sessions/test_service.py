"""Sessions of the real OpenCode: created, listed, found and closed, by access rights."""

import asyncio

import pytest

from rookery.sessions.aliases import AgentAlias
from tests.support.agents.sessions import refusal, start_session_driver
from tests.support.agents.watcher import make_script
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SCRIPT = make_script(
    hello=[{"say": "hello yourself"}],
    hold=[{"say": "at last", "hold": "never"}],
    refuse=[{"error": 400, "message": "no such thing"}],
)
ALIASES = {"careful": AgentAlias(agent="plan", model="scripted/scripted"), "lost": AgentAlias(agent="nobody")}


@requirement("session.create.input", "session.info.shape", "session.list.all", "session.get.one", "session.close.one")
async def test_sessions_are_made_listed_found_and_closed() -> None:
    async with start_session_driver(SCRIPT, aliases=ALIASES) as stage:
        sessions = stage.sessions
        one = await stage.host.create("one")
        made = await sessions.create(str(one.path))
        assert made.as_dict() | {"title": "", "lastActivity": 0} == {
            "id": made.id,
            "directory": str(one.path),
            "status": "idle",
            "messageCount": 0,
            "lastActivity": 0,
            "project": one.project.id,
            "workspace": "one",
            "title": "",
            "agent": None,
            "model": None,
            "opencode": "idle",
            "detail": "",
            "error": None,
            "parent": None,
            "notes": (),
        }
        assert (await sessions.send(made.id, "hello", timeout=60)).status == "finished"
        second = await sessions.create(str(one.path), "plan", "scripted/scripted", title="second")
        assert (second.title, second.agent, second.model) == ("second", "plan", "scripted/scripted")
        listed = await sessions.list()
        assert [(each.id, each.message_count) for each in listed] == [(second.id, 0), (made.id, 2)]
        shown = await sessions.get(made.id)
        assert (shown.status, shown.agent, shown.model) == ("idle", "build", "scripted/scripted")
        assert shown.last_activity > made.last_activity

        # A turn that failed shows until there is another; one that runs is active.
        await sessions.send(made.id, "refuse", timeout=60)
        failed = await sessions.get(made.id)
        assert (failed.status, failed.opencode, failed.message_count) == ("error", "idle", 4)
        assert failed.error is not None and "no such thing" in failed.error
        await sessions.send(made.id, "hold", wait=False)
        await stage.until_is(one, made.id, "busy")
        assert ((await sessions.get(made.id)).status, (await sessions.get(made.id)).opencode) == ("active", "busy")
        aborted = await sessions.abort(made.id)
        assert aborted.error is None
        assert (await sessions.wait_for_idle(made.id)).found

        # Agents and models go by their own names or by an alias of the settings.
        careful = await sessions.create(str(one.path), "careful")
        assert (careful.agent, careful.model, careful.notes) == ("plan", "scripted/scripted", ())
        claude = await sessions.create(str(one.path), "claude")
        assert "default model" in claude.notes[0]
        assert (await sessions.create(str(one.path), model="scripted")).model == "scripted/scripted"
        for agent, model, named in (
            ("cloud", None, "cloud"),
            (None, "nope/none", "nope/none"),
            ("lost", None, "nobody"),
        ):
            async with refusal("invalid-input", named):
                await sessions.create(str(one.path), agent, model)

        closed = await sessions.close(made.id)
        assert closed.as_dict() == {"id": made.id, "closed": True, "deleted": False}
        assert made.id not in [each.id for each in await sessions.list()]
        async with sessions.use_agent(second.id) as life:
            assert len(await life.client.messages(made.id)) > 4
            await sessions.close(second.id, delete=True)
            async with refusal("session-not-found", second.id):
                await life.client.session(second.id)
        told = stage.host.gateway.events.of("session.changed")
        assert {one["name"] for one in told} == {"one"}
        does = [one["session"]["opencode"] for one in told if one["session"]["id"] == made.id]
        assert (does[0], "busy" in does, does[-1]) == ("idle", True, "idle")
        gone = [one["session"]["id"] for one in stage.host.gateway.events.of("session.closed")]
        assert gone == [made.id, second.id]
        for gone in (made.id, second.id, "ses_none", "../etc"):
            async with refusal("session-not-found", gone):
                await sessions.get(gone)


@requirement("session.scope.token")
async def test_whoever_may_see_one_workspace_sees_and_reaches_no_other() -> None:
    async with start_session_driver(SCRIPT) as stage:
        sessions = stage.sessions
        one, two = await stage.host.create("one"), await stage.host.create("two")
        first, second = await stage.session(one), await stage.session(two)
        assert {each.id for each in await sessions.list()} == {first, second}
        assert [each.id for each in await sessions.list(one.path)] == [first]
        assert (await sessions.get(first, one.path)).id == first
        assert (await sessions.create(str(one.path), scope=one.path)).workspace == "one"
        uses = (
            lambda: sessions.get(second, one.path),
            lambda: sessions.send(second, "hello", scope=one.path),
            lambda: sessions.messages(second, scope=one.path),
            lambda: sessions.wait_for_idle(second, scope=one.path),
            lambda: sessions.toasts(second, scope=one.path),
            lambda: sessions.tool_history(second, scope=one.path),
            lambda: sessions.close(second, one.path),
        )
        for use in uses:
            async with refusal("session-not-found", second):
                await use()
        for use in (lambda: sessions.asks(scope=one.path), lambda: sessions.answer("per_1", "once", scope=one.path)):
            async with refusal("tool-denied"):
                await use()
        async with refusal("tool-denied", str(two.path)):
            await sessions.create(str(two.path), scope=one.path)
        async with refusal("invalid-input", "not an absolute path"):
            await sessions.create("nowhere")
        async with refusal("workspace-not-found", "/nowhere"):
            await sessions.create("/nowhere")
        # A workspace that is closed ends what waits for its sessions, and none of that starts its agent again.
        waiting = asyncio.ensure_future(sessions.wait_for_message(first, "never", 60))
        sending = asyncio.ensure_future(sessions.send(first, "hold", timeout=60))
        await stage.until_is(one, first, "busy")
        await stage.host.agents.stop(one)
        assert ((await waiting).found, (await waiting).note) == (False, "the session was closed")
        assert (await waiting).closed
        assert (await sending).status == "error"
        assert [each.id for each in await sessions.list()] == [second]
        assert (await stage.host.agents.process(one)).state == "stopped"
        async with refusal("session-not-found", first):
            await sessions.get(first)

        await sessions.show_toast(second, "not for one")
        assert (await sessions.wait_for_toast(second, "not for one")).found
        (shown,) = stage.host.gateway.events.of("session.toast")
        assert (shown["name"], shown["toast"]["message"]) == ("two", "not for one")
        assert await sessions.toasts(scope=one.path) == []
        assert [each.session_id for each in await sessions.toasts()] == [second]
