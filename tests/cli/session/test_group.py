"""`rookery session` with a real daemon, the real OpenCode and a scripted model."""

import asyncio
import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import click
import pytest

from rookery.cli.session import COMMANDS, session as group
from tests.support.e2e import Colony
from tests.support.person import at_a_terminal
from tests.support.requirements import requirement
from tests.support.sessions import README, a_driven_colony

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


def test_the_summaries_in_the_lazy_table_are_those_of_the_commands() -> None:
    for name, (_, text) in COMMANDS.items():
        command = group.get_command(click.Context(group), name)
        assert command is not None and command.help is not None
        assert command.help.partition("\n")[0] == text
        assert "Examples:" in (command.epilog or "")


async def run(colony: Colony, cwd: Path, *words: str, code: int = 0) -> CompletedProcess[str]:
    """That it ends with `code` is seen to."""
    done = await colony.cli("session", *words, cwd=cwd)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done


async def told(colony: Colony, cwd: Path, *words: str, code: int = 0) -> Any:
    return json.loads((await run(colony, cwd, *words, "--json", code=code)).stdout)


@requirement("session.create.input", "session.list.all", "session.get.one", "session.send.wait", "session.close.one")
@requirement("session.messages.get", "session.wait.message", "session.toasts.get", "session.exec.input")
@requirement("session.history.get", "session.wait.timeout")
async def test_a_session_is_begun_driven_waited_for_read_and_closed() -> None:
    async with a_driven_colony("fix") as (colony, (path,)):
        id_ = (await run(colony, path, "new", "--title", "The first")).stdout.strip()
        assert id_.startswith("ses_")
        done = await run(colony, path, "send", "fix", "hello", "--timeout", "120")
        assert done.stdout == "Good morning.\n"
        done = await run(colony, path, "send", ".", "list", "--timeout", "120")
        assert done.stdout.endswith("There it is.\n") and "glob" in done.stderr

        shown = await told(colony, path, "show", id_)
        assert (shown["id"], shown["title"], shown["messageCount"]) == (id_, "The first", 5)
        assert "The first" in (await run(colony, path, "show", "fix")).stdout
        rows = (await run(colony, path, "list")).stdout.splitlines()
        assert rows[0].split()[:3] == ["ID", "WORKSPACE", "STATUS"] and rows[1].split()[:4] == [id_, "fix", "idle", "5"]
        said = (await told(colony, path, "messages", id_))["messages"]
        assert [each["content"] for each in said][:2] == ["hello", "Good morning."]
        text = (await run(colony, path, "messages", id_, "-n", "1", "--since", "1h")).stdout
        assert "There it is." in text and "Good morning." not in text

        assert "There" in (await run(colony, path, "wait", id_, "--message", "^There", "--role", "assistant")).stdout
        assert "glob" in (await run(colony, path, "wait", id_, "--tool", "glob", "--pattern", "README")).stdout
        assert "README.md" in (await run(colony, path, "wait", id_, "--file", "README.md")).stdout
        assert "idle" in (await run(colony, path, "wait", id_, "--idle")).stdout
        await colony.rest("POST", f"/api/sessions/{id_}/toasts", {"message": "all done", "variant": "warning"})
        assert (await run(colony, path, "wait", id_, "--toast", "(?i)ALL")).stdout == "all done\n"
        assert [each["message"] for each in await told(colony, path, "toasts", "--since", "1m")] == ["all done"]
        assert "all done" in (await run(colony, path, "toasts", "fix")).stdout

        done = await run(colony, path, "tool", id_, "read", f"filePath={path}/README.md")
        assert README.strip() in done.stdout
        ran = await told(colony, path, "history", id_)
        assert [(each["tool"], each["origin"]) for each in ran] == [("glob", None), ("read", "execute_tool")]
        rows = (await run(colony, path, "history")).stdout.splitlines()
        assert rows[0].split() == ["BEGAN", "TOOL", "STATUS", "TOOK", "WHAT"] and len(rows) == 3

        assert (await run(colony, path, "close", "fix")).stdout == f"{id_} is closed\n"
        assert await told(colony, path, "list") == []
        done = await run(colony, path, "show", "fix", code=3)
        assert "rookery session new fix" in done.stderr


@requirement("session.send.timeout", "session.wait.timeout", "session.wait.pattern")
async def test_exit_codes_tell_what_went_wrong() -> None:
    async with a_driven_colony("fix") as (colony, (path,)):
        id_ = (await told(colony, path, "new"))["id"]
        done = await run(colony, path, "send", id_, "fail", "--timeout", "120", code=1)
        assert "no credit left" in done.stderr and done.stdout == ""
        turn = await told(colony, path, "send", id_, "hold", "--timeout", "1", code=124)
        assert turn["status"] == "timeout"
        done = await run(colony, path, "wait", id_, "--message", "At last", "--timeout", "1", code=124)
        assert done.stdout == "" and "seen last" in done.stderr
        assert (await told(colony, path, "wait", id_, "--idle", "--timeout", "1", code=124))["found"] is False
        (line,) = (await run(colony, path, "wait", id_, "--idle", "--timeout", "1", code=124)).stderr.splitlines()
        assert line.startswith("rookery: it did not come; seen last: ")
        assert (await run(colony, path, "abort", id_)).stdout.startswith(id_)
        await run(colony, path, "wait", id_, "--idle", "--timeout", "120")
        done = await run(colony, path, "send", id_, "hello", "--no-wait")
        assert "has it" in done.stderr

        failed = await run(colony, path, "tool", id_, "read", f"filePath={path}/missing", code=1)
        assert "failed" in failed.stderr
        for words, code, text in (
            (("show", "ses_unknown"), 3, "ses_unknown"),
            (("show", "no-such-workspace"), 3, "no-such-workspace"),
            (("wait", id_), 2, "--message"),
            (("wait", id_, "--message", "("), 2, "("),
            (("wait", id_, "--idle", "--since", "yesterday"), 2, "yesterday"),
            (("tool", id_, "nothing"), 2, "nothing"),
            (("answer", "per_unknown"), 2, "once, always or reject"),
        ):
            assert text in (await run(colony, path, *words, code=code)).stderr


@requirement("session.asks.visible")
async def test_what_a_session_asks_is_answered_by_a_person_and_by_nothing_that_rookery_started() -> None:
    async with a_driven_colony("fix") as (colony, (path,)):
        id_ = (await told(colony, path, "new"))["id"]
        await run(colony, path, "send", id_, "ask", "--no-wait")
        await colony.until_all(lambda all_: all_["fix"]["attention"])
        (ask,) = await told(colony, path, "asks")
        assert (ask["sessionId"], ask["kind"], ask["workspace"]) == (id_, "permission", "fix")
        assert "echo asked" in (await run(colony, path, "asks", "fix")).stdout

        # What a test starts has the marker, as an agent's shell has.
        refused = await run(colony, path, "answer", ask["id"], "once", code=4)
        assert "user only" in refused.stderr and not (path / "asked.txt").exists()
        with at_a_terminal("session", "answer", "per_unknown", "once", cwd=path) as person:
            assert await asyncio.to_thread(person.ends) == 2, person.text
        with at_a_terminal("session", "answer", ask["id"], "once", cwd=path) as person:
            assert await asyncio.to_thread(person.ends) == 0, person.text
        await run(colony, path, "wait", id_, "--message", "Done", "--timeout", "120")
        assert (path / "asked.txt").read_text() == "asked\n"
        assert (await run(colony, path, "asks")).stdout == "nothing is asked\n"
