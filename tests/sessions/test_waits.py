"""Waits with the real OpenCode: existing matches count, new ones are noticed, and timeouts return the last state."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rookery.agents.opencode.api import ApiConnection
from rookery.sessions.records import WaitResult
from tests.support.agents.sessions import refusal, start_session_driver
from tests.support.agents.watcher import make_script
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SCRIPT = make_script(
    hello=[{"say": "hello yourself"}],
    write=[{"call": "write", "with": {"filePath": "made.txt", "content": "the answer is 42\n"}}, {"say": "written"}],
    hold=[{"say": "at last", "hold": "one"}],
)
# Says something of its own to whoever says hello, as plugins do.
PLUGIN = """
export default async ({ client }) => ({
  event: async ({ event }) => {
    if (event.type !== "session.status" || event.properties.status.type !== "idle" || globalThis.said) return
    globalThis.said = true
    const toast = { title: "Boulder", message: "Resuming in 2s", variant: "warning", duration: 60000 }
    await client.tui.showToast({ body: toast })
    await client.session.prompt({
      path: { id: event.properties.sessionID },
      body: { noReply: true, parts: [{ type: "text", text: "BOULDER ENFORCEMENT" }] },
    })
  },
})
"""


@requirement(
    "session.wait.message",
    "session.wait.toast",
    "session.wait.timeout",
    "session.wait.pattern",
    "session.messages.get",
    "session.messages.since",
    "session.toasts.get",
)
async def test_messages_toasts_tools_and_files_are_waited_for_and_read_back() -> None:
    plugin = Path.home() / ".config" / "opencode" / "plugin" / "boulder.js"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(PLUGIN)
    async with start_session_driver(SCRIPT) as stage:
        sessions = stage.sessions
        one = await stage.host.create("one")
        session = await stage.session(one)

        # Nothing yet: time runs out, and what was seen is told.
        late = await sessions.wait_for_message(session, "hello", 0.2)
        assert late == WaitResult(found=False, session_id=session, seen="no message", note=late.note)
        assert late.note is not None and "timed out after 0.2 s" in late.note
        assert (await sessions.wait_for_toast(session, "Boulder", 0.2)).seen == "no toast"

        # What is still to come.
        waits = [
            sessions.wait_for_message(session, r"hello y\w+", 60, role="assistant"),
            sessions.wait_for_message(session, "ENFORCEMENT", 60),
            sessions.wait_for_toast(session, r"Resuming in \ds", 60),
        ]
        waiting = [asyncio.ensure_future(wait) for wait in waits]
        await sessions.send(session, "hello", timeout=60)
        said, pushed, toast = await asyncio.gather(*waiting)
        assert (said.found, said.match) == (True, "hello yourself")
        assert said.message is not None and said.message.role == "assistant"
        assert pushed.message is not None and (pushed.message.role, pushed.match) == ("user", "ENFORCEMENT")
        assert toast.toast is not None
        assert (toast.toast.title, toast.toast.variant, toast.toast.duration) == ("Boulder", "warning", 60000)
        assert toast.toast.expires_at - toast.toast.shown_at == 60000
        assert (toast.toast.workspace, toast.toast.session_id) == ("one", None)

        # What is there already.
        assert (await sessions.wait_for_message(session, "hello yourself", 5)).found
        assert (await sessions.wait_for_toast(session, "Resuming", 5)).found
        assert [each.message for each in await sessions.toasts(session)] == ["Resuming in 2s"]
        assert not (await sessions.wait_for_toast(session, "Resuming", 0.2, since=toast.toast.shown_at)).found
        await sessions.show_toast(session, "soon over", duration=1)
        assert (await sessions.wait_for_toast(session, "soon", 30)).found
        everything = await sessions.toasts(session, since=0)
        assert [(each.message, each.session_id) for each in everything] == [
            ("Resuming in 2s", None),
            ("soon over", session),
        ]

        # The newest, in the order in which they were made, those of plugins among them.
        assert (await sessions.wait_for_idle(session, 60)).found
        shown = (await sessions.messages(session)).messages
        assert [(each.role, each.content) for each in shown] == [
            ("user", "hello"),
            ("assistant", "hello yourself"),
            ("user", "BOULDER ENFORCEMENT"),
        ]
        assert [each.content for each in (await sessions.messages(session, 1)).messages] == ["BOULDER ENFORCEMENT"]
        later = (await sessions.messages(session, since=shown[0].time)).messages
        assert [each.content for each in later] == ["hello yourself", "BOULDER ENFORCEMENT"]
        async with refusal("invalid-input"):
            await sessions.messages(session, 0)
        async with sessions.use_agent(session) as life:
            theirs = await life.client.messages(session)
        assert [each.info.id for each in theirs] == [each.id for each in shown]

        # Tools and files.
        file = asyncio.ensure_future(sessions.wait_for_file(session, "made.txt", 60, pattern=r"is \d+"))
        tool = asyncio.ensure_future(sessions.wait_for_tool(session, "write", 60, pattern="the answer"))
        await sessions.send(session, "write", timeout=60)
        assert ((await file).file, (await file).match) == ("made.txt", "is 42")
        run = (await tool).tool
        assert run is not None and (run.tool, run.status) == ("write", "completed")
        assert (await sessions.wait_for_tool(session)).tool == run
        late = await sessions.wait_for_tool(session, "bash", 0.2)
        assert not late.found and late.seen is not None and "written" in late.seen
        assert (await sessions.wait_for_file(session, str(one.path / "notes.txt"))).found
        missing = await sessions.wait_for_file(session, "not/yet", 0.2, progress=stage.progress)
        assert (missing.found, missing.seen) == (False, "not/yet: it does not exist")
        for outside in ("../x", "/etc/passwd", "", "a/../../b"):
            async with refusal("path-outside-root"):
                await sessions.wait_for_file(session, outside)
        for wait in (sessions.wait_for_message, sessions.wait_for_toast):
            async with refusal("invalid-input", "("):
                await wait(session, "(")

        # By now one of the two toasts is over.
        assert [each.message for each in await sessions.toasts()] == ["Resuming in 2s"]

        # A session that is closed ends what waits for it.
        held = asyncio.ensure_future(sessions.send(session, "hold", timeout=60))
        waiting = [
            asyncio.ensure_future(sessions.wait_for_message(session, "never", 60)),
            asyncio.ensure_future(sessions.wait_for_idle(session, 60)),
        ]
        await stage.until_is(one, session, "busy")
        await sessions.close(session)
        ended = await asyncio.gather(*waiting)
        assert ended[0].note == "the session was closed"
        turn = await held
        assert turn.status == "error"


@requirement("session.wait.light")
async def test_waits_for_idle_a_file_a_toast_and_the_screen_read_no_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    send = ApiConnection._send

    async def recorded(self: ApiConnection, method: str, path: str, *more: Any) -> Any:
        asked.append(f"{method} {path}")
        return await send(self, method, path, *more)

    async with start_session_driver(SCRIPT) as stage:
        one = await stage.host.create("one")
        # Begun in OpenCode itself, so that nothing of it was read or counted before.
        life = await stage.host.agents.ensure_running(one)
        session = (await life.client.create_session(title="a session")).id
        assert (await life.client.send(session, "hello")).text == "hello yourself"
        transcript = f"GET /session/{session}/message"
        monkeypatch.setattr(ApiConnection, "_send", recorded)

        async def wait(what: str, **more: Any) -> dict[str, Any]:
            body = {"for": what, "timeout": 60_000, **more}
            status, found = await stage.host.gateway.rest("POST", f"/api/sessions/{session}/wait", body)
            assert status == 200, found
            return found

        idle = await wait("idle")
        assert idle["found"] and (idle["session"]["id"], idle["session"]["messageCount"]) == (session, None)
        (one.path / "made.txt").write_text("the answer is 42\n")
        assert (await wait("file", path="made.txt", pattern="42"))["found"]
        assert (await wait("screen", pattern="Ask anything|hello yourself"))["found"]
        late = await wait("screen", pattern="never on it", timeout=100)
        assert not late["found"] and late["seen"]
        late = await wait("toast", pattern="saved", timeout=100)
        assert not late["found"] and late["seen"] == "no toast"
        await stage.sessions.show_toast(session, "saved", duration=60_000)
        assert (await wait("toast", pattern="saved"))["found"]
        # With events as well: a turn that ends, and a file, words and a toast that come while they are waited for.
        await life.client.prompt(session, "hold")
        await stage.until_is(one, session, "busy")
        late = await wait("idle", timeout=100)
        assert not late["found"] and late["seen"]
        waits = [
            asyncio.ensure_future(wait("idle")),
            asyncio.ensure_future(wait("file", path="later.txt")),
            asyncio.ensure_future(wait("screen", pattern="at last")),
            asyncio.ensure_future(wait("toast", pattern="done")),
        ]
        await stage.sessions.show_toast(session, "done", duration=1)
        (one.path / "later.txt").touch()
        stage.host.model.release("one")
        assert all([(await one)["found"] for one in waits])
        assert asked and not [one for one in asked if one.startswith(transcript)]
        # Whoever asks for messages does read them.
        assert (await stage.host.gateway.rest("GET", f"/api/sessions/{session}/messages"))[0] == 200
        assert [one for one in asked if one.startswith(transcript)]
