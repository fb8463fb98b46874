"""Sessions for Python programs: the real daemon, the real OpenCode, a scripted model."""

import asyncio
import sys

import pytest

import rookery
from tests.support.cli.user import at_a_terminal
from tests.support.daemon.sessions import README, start_system_with_sessions
from tests.support.requirements import requirement

# A program that somebody runs, who says yes.
ANSWER = """
import asyncio, sys, rookery
async def main():
    async with rookery.connect() as r:
        s = await r.sessions.get(sys.argv[1])
        print((await s.answer(sys.argv[2], "once")).text)
asyncio.run(main())
"""

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


@requirement("session.face.python", "session.send.wait", "session.wait.toast", "session.wait.timeout")
async def test_a_program_drives_a_session_and_what_ends_badly_is_raised_or_answered() -> None:
    async with start_system_with_sessions("fix") as (system, (path,)), rookery.connect() as r:
        ws = await r.workspaces.get("fix")
        s = await ws.sessions.create(title="By Python")
        assert (s.directory, s.status, s.record.title) == (path, "idle", "By Python")
        assert (await s.send("hello", wait=True, timeout=120)).content == "Good morning."
        said = await s.messages()
        assert [each.content for each in said] == ["hello", "Good morning."]
        assert await s.messages(since=said[0].time / 1000) == said[1:] == await s.messages(1)
        assert (await s.refresh()).record.message_count == 2
        assert [each.id for each in await ws.sessions.list()] == [s.id]
        assert [each.id for each in await r.sessions.list()] == [s.id]
        assert (await r.sessions.get(s.id)).record.title == s.record.title

        await s.show_toast("all done", variant="success", duration=60)
        toast = (await s.wait_for_toast("done", timeout=10)).toast
        assert toast is not None and toast.message == "all done"
        assert [each.message for each in await s.toasts()] == ["all done"]
        run = await s.execute_tool("read", {"filePath": str(path / "README.md")})
        assert run.output is not None and README.strip() in run.output
        assert [each.tool for each in await s.tool_history()] == ["read"]
        await s.send("list", timeout=120)
        assert (await s.wait_for_tool("glob")).found and (await s.wait_for_file("README.md", pattern="app")).found
        assert (await s.wait_for_message("morning", role="assistant")).match == "morning"

        for failing, code in (
            (s.send("fail", timeout=120), "turn-failed"),
            (s.execute_tool("read", {"filePath": str(path / "missing")}), "tool-failed"),
            (s.wait_for_toast("never", timeout=0.2), "timeout"),
            (s.wait_for_message("(", timeout=1), "invalid-input"),
            (r.sessions.get("ses_unknown"), "session-not-found"),
        ):
            with pytest.raises(rookery.RookeryError) as caught:
                await failing
            assert caught.value.code == code
        assert not (await s.wait_for_message("never", timeout=0.2, check=False)).found
        assert (await s.send("fail", timeout=120, check=False)).status == "error"

        assert (await s.send("ask", wait=False)).status == "taken"
        # The turn that failed is among what wants attention already.
        await system.until_all(lambda all_: "permission" in [need["reason"] for need in all_["fix"]["attention"]])
        (ask,) = await s.asks()
        assert [each.id for each in await r.sessions.asks()] == [ask.id] and "echo asked" in ask.text
        # Tests may share a terminal with what Rookery started, which may not answer.
        with at_a_terminal(argv=[sys.executable, "-c", ANSWER, s.id, ask.id]) as person:
            assert await asyncio.to_thread(person.ends) == 0, person.text
        assert person.text == f"{ask.text}\n"
        await s.wait_for_message("Done", timeout=120)
        assert (path / "asked.txt").exists()
        await s.send("hold", wait=False)
        assert (await s.abort()).id == s.id
        await s.wait_for_idle(timeout=120)
        await s.close()
        assert await ws.sessions.list() == []
