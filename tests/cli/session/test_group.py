"""`rookery session` with a real daemon, the real OpenCode and a scripted model."""

import asyncio
import itertools
import json
import os
import re
import subprocess
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import click
import pytest

from rookery.cli.session.group import COMMANDS, session as group
from rookery.cli.session.send import choose_timeout, list_pieces
from rookery.sessions.follow import MAX_WAIT_SECONDS
from tests.support.cli.user import at_a_terminal
from tests.support.daemon.jobs import as_child
from tests.support.daemon.process import ROOKERY, rookery
from tests.support.daemon.sessions import README, start_system_with_sessions
from tests.support.daemon.system import LIMIT, FullSystem
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


def test_the_summaries_in_the_lazy_table_are_those_of_the_commands() -> None:
    for name, (_, text) in COMMANDS.items():
        command = group.get_command(click.Context(group), name)
        assert command is not None and command.help is not None
        assert command.help.partition("\n")[0] == text
        assert "Examples:" in (command.epilog or "")


# The line that is redrawn each second, and erased before anything else is printed.
PROGRESS = re.compile(r"(\r\x1b\[Kthe turn is running \.\.\. \d+ s)+\r\x1b\[K")


async def run(system: FullSystem, cwd: Path, *words: str, code: int = 0) -> CompletedProcess[str]:
    """That it ends with `code` is seen to."""
    done = await system.cli("session", *words, cwd=cwd)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done


async def told(system: FullSystem, cwd: Path, *words: str, code: int = 0) -> Any:
    return json.loads((await run(system, cwd, *words, "--json", code=code)).stdout)


@pytest.mark.parametrize(
    ("messages", "pieces"),
    [
        ([("one", [0])], ["tool 0", "one\n"]),
        ([("one", [3])], ["one\n", "tool 0"]),
        (
            [("one\ntwo", [3, 3]), ("", [0]), ("three", [5])],
            ["one\n", "tool 0", "tool 1", "two\n", "tool 2", "three\n", "tool 3"],
        ),
        # The text is printed as it stands, wherever the tools are.
        ([("one\n\ntwo", [4]), ("\nthree\n", [0])], ["one\n", "tool 0", "\ntwo\n", "tool 1", "\nthree\n"]),
        ([("", [0])], ["tool 0"]),
    ],
)
def test_a_turn_is_printed_with_each_tool_after_the_text_before_it(
    messages: list[tuple[str, list[int]]], pieces: list[str]
) -> None:
    number = itertools.count()
    told = [
        {"content": text, "parts": [{"offset": at, "tool": f"tool {next(number)}"} for at in offsets]}
        for text, offsets in messages
    ]
    content = "\n".join(text for text, _ in messages if text)
    found = list(list_pieces({"content": content, "messages": told}))
    assert [one if isinstance(one, str) else one["tool"] for one in found] == pieces
    assert "".join(one for one in found if isinstance(one, str)).removesuffix("\n") == content.removesuffix("\n")


def to_one_pipe(system: FullSystem, cwd: Path, *words: str) -> str:
    """What a command prints, with stderr where stdout goes."""
    done = subprocess.run(
        [ROOKERY, "session", *words],
        cwd=cwd,
        env=os.environ | system.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    return done.stdout


async def test_messages_are_printed_with_each_tool_after_the_text_before_it() -> None:
    async with start_system_with_sessions("fix") as (system, (path,)):
        await system.rest("POST", "/api/sessions", {"directory": str(path)})
        text = await asyncio.to_thread(to_one_pipe, system, path, "send", "fix", "look around", "--timeout", "120")
        assert [line.split(" ")[0] for line in text.splitlines()] == ["I", "glob", "One"], text
        text = (await run(system, path, "messages", "fix")).stdout
        lines = [line for line in text.splitlines() if line and not line.startswith(("user ", "assistant "))]
        assert [line.split(" ")[0] for line in lines] == ["look", "I", "glob", "One"], text


@requirement("session.send.stream")
def test_whoever_watches_a_turn_has_a_day_unless_they_give_a_time_limit() -> None:
    assert choose_timeout(None, streamed=True) == MAX_WAIT_SECONDS == 86_400
    assert (
        choose_timeout(None, streamed=False),
        choose_timeout(5, streamed=True),
        choose_timeout(5, streamed=False),
    ) == (30, 5, 5)


@requirement("session.send.stream")
async def test_send_shows_a_turn_on_a_terminal_as_it_happens_and_ctrl_c_leaves_it() -> None:
    async with start_system_with_sessions("fix") as (system, (path,)):
        id_ = (await system.rest("POST", "/api/sessions", {"directory": str(path)}))["id"]
        words = ("session", "send", "fix", "work slowly")

        def watch() -> str:
            with at_a_terminal(*words, cwd=path, env=system.env) as person:
                # The turn cannot end before the model is let go on.
                person.reads("completed", LIMIT)
                assert "I look first." in person.text and "At last." not in person.text
                # Between two events, the seconds are counted.
                person.reads("the turn is running ... ", LIMIT)
                system.model.release("slow")
                person.reads("At last.", LIMIT)
                assert person.ends() == 0
                return PROGRESS.sub("", person.text)

        text = await asyncio.to_thread(watch)
        seen = [line.split(" ")[0] for line in text.splitlines() if line]
        assert [seen[0], *dict.fromkeys(seen[1:])] == ["I", "glob", "At"] and text.endswith("\nAt last.\n"), text
        # A run that has not ended has no title yet; its arguments are not shown as JSON.
        assert "{" not in text, text

        def leave() -> str:
            slowly = ("session", "send", "fix", "type slowly", "--timeout", "300")
            with at_a_terminal(*slowly, cwd=path, env=system.env) as person:
                # A sentence is shown before it is whole.
                person.reads("word-0 word-1 ", LIMIT)
                person.types("\x03")
                assert person.ends() == 130
                return PROGRESS.sub("", person.text)

        text = await asyncio.to_thread(leave)
        assert text.startswith("word-0 ") and "word-999" not in text
        assert f"the turn continues; stop it: rookery session abort {id_}\n" in text
        assert f"rookery session wait {id_} --idle" in text
        assert (await told(system, path, "show", id_))["status"] == "active"
        await run(system, path, "abort", id_)
        await run(system, path, "wait", id_, "--idle", "--timeout", "120")

        # An ask is shown when it comes.
        def ask() -> str:
            with at_a_terminal("session", "send", "fix", "ask", "--timeout", "300", cwd=path, env=system.env) as person:
                person.reads("rookery session answer per_", LIMIT)
                person.types("\x03")
                assert person.ends() == 130
                return person.text

        assert "the agent asks: bash: echo asked" in await asyncio.to_thread(ask)

        # OpenCode's interface does not show what was asked before it was started: the command prints it.
        def attach() -> str:
            command = 'stty rows 40 cols 120; exec "$0" agent attach'
            with at_a_terminal(argv=["sh", "-c", command, str(ROOKERY)], cwd=path, env=system.env) as person:
                person.reads("the agent asks: bash: echo asked", LIMIT)
                person.reads("interrupt", LIMIT)
                person.types("\x03")
                assert person.ends() == 0
                return person.text

        assert (await asyncio.to_thread(attach)).count("rookery session answer per_") == 2
        await run(system, path, "abort", id_)
        await run(system, path, "wait", id_, "--idle", "--timeout", "120")
        done = await run(system, path, "send", "fix", "hello", "--timeout", "120")
        assert (done.stdout, done.stderr) == ("Good morning.\n", "")
        turn = await told(system, path, "send", "fix", "hello", "--timeout", "120")
        assert turn["content"] == "Good morning."


async def test_a_turn_is_streamed_over_rest_and_a_refusal_is_a_plain_answer() -> None:
    async with start_system_with_sessions("fix") as (system, (path,)):
        id_ = (await system.rest("POST", "/api/sessions", {"directory": str(path)}))["id"]
        body = {"content": "look around", "stream": True, "timeout": 120_000}
        headers = {"Authorization": f"Bearer {system.daemon.token}"}
        place = system.daemon.runtime["url"] + "/api/sessions/{}/messages"
        async with system._session.post(place.format(id_), json=body, headers=headers) as answer:
            assert (answer.status, answer.content_type) == (200, "text/event-stream")
            text = await answer.text()
        kinds = re.findall(r"^event: (\w+)$", text, re.MULTILINE)
        news = [json.loads(data) for data in re.findall(r"^data: (.*)$", text, re.MULTILINE)]
        assert kinds[0] == "taken" and kinds[-1] == "turn" and set(kinds) == {"taken", "text", "tool", "turn"}
        assert kinds.index("text") < kinds.index("tool") < kinds.index("turn")
        said = "".join(one["text"] for kind, one in zip(kinds, news, strict=True) if kind == "text")
        assert said == "I look first.One page." and news[-1]["content"] == "I look first.\nOne page."
        async with system._session.post(place.format("ses_none"), json=body, headers=headers) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (404, "session-not-found")


@requirement("session.create.input", "session.list.all", "session.get.one", "session.send.wait", "session.close.one")
@requirement("session.messages.get", "session.wait.message", "session.toasts.get", "session.exec.input")
@requirement("session.history.get", "session.wait.timeout", "session.face.all")
async def test_a_session_is_begun_driven_waited_for_read_and_closed() -> None:
    async with start_system_with_sessions("fix") as (system, (path,)):
        id_ = (await run(system, path, "new", "--title", "The first")).stdout.strip()
        assert id_.startswith("ses_")
        done = await run(system, path, "send", "fix", "hello", "--timeout", "120")
        assert done.stdout == "Good morning.\n"
        done = await run(system, path, "send", ".", "list", "--timeout", "120")
        assert done.stdout.endswith("There it is.\n") and "glob" in done.stderr

        shown = await told(system, path, "show", id_)
        assert (shown["id"], shown["title"], shown["messageCount"]) == (id_, "The first", 5)
        assert "The first" in (await run(system, path, "show", "fix")).stdout
        rows = (await run(system, path, "list")).stdout.splitlines()
        assert rows[0].split()[:3] == ["ID", "WORKSPACE", "STATUS"] and rows[1].split()[:4] == [id_, "fix", "idle", "5"]
        said = (await told(system, path, "messages", id_))["messages"]
        assert [each["content"] for each in said][:2] == ["hello", "Good morning."]
        text = (await run(system, path, "messages", id_, "-n", "1", "--since", "1h")).stdout
        assert "There it is." in text and "Good morning." not in text

        assert "There" in (await run(system, path, "wait", id_, "--message", "^There", "--role", "assistant")).stdout
        assert "glob" in (await run(system, path, "wait", id_, "--tool", "glob", "--pattern", "README")).stdout
        assert "README.md" in (await run(system, path, "wait", id_, "--file", "README.md")).stdout
        assert "idle" in (await run(system, path, "wait", id_, "--idle")).stdout
        await system.rest("POST", f"/api/sessions/{id_}/toasts", {"message": "all done", "variant": "warning"})
        assert (await run(system, path, "wait", id_, "--toast", "(?i)ALL")).stdout == "all done\n"
        assert [each["message"] for each in await told(system, path, "toasts", "--since", "1m")] == ["all done"]
        assert "all done" in (await run(system, path, "toasts", "fix")).stdout

        done = await run(system, path, "tool", id_, "read", f"filePath={path}/README.md")
        assert README.strip() in done.stdout
        ran = await told(system, path, "history", id_)
        assert [(each["tool"], each["origin"]) for each in ran] == [("glob", None), ("read", "execute_tool")]
        rows = (await run(system, path, "history")).stdout.splitlines()
        assert rows[0].split() == ["BEGAN", "TOOL", "STATUS", "TOOK", "WHAT"] and len(rows) == 3

        assert (await run(system, path, "close", "fix")).stdout == f"{id_} is closed\n"
        assert await told(system, path, "list") == []
        done = await run(system, path, "show", "fix", code=3)
        assert "rookery session new fix" in done.stderr


@requirement("session.send.timeout", "session.wait.timeout", "session.wait.pattern")
async def test_exit_codes_tell_what_went_wrong() -> None:
    async with start_system_with_sessions("fix") as (system, (path,)):
        id_ = (await told(system, path, "new"))["id"]
        done = await run(system, path, "send", id_, "fail", "--timeout", "120", code=1)
        assert "no credit left" in done.stderr and done.stdout == ""
        turn = await told(system, path, "send", id_, "hold", "--timeout", "1", code=124)
        assert turn["status"] == "timeout"
        done = await run(system, path, "wait", id_, "--message", "At last", "--timeout", "1", code=124)
        assert done.stdout == "" and "last seen" in done.stderr
        assert (await told(system, path, "wait", id_, "--idle", "--timeout", "1", code=124))["found"] is False
        (line,) = (await run(system, path, "wait", id_, "--idle", "--timeout", "1", code=124)).stderr.splitlines()
        assert line.startswith("rookery: no match; last seen: ")
        assert (await run(system, path, "abort", id_)).stdout.startswith(id_)
        await run(system, path, "wait", id_, "--idle", "--timeout", "120")
        done = await run(system, path, "send", id_, "hello", "--no-wait")
        assert "has the message" in done.stderr

        failed = await run(system, path, "tool", id_, "read", f"filePath={path}/missing", code=1)
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
            assert text in (await run(system, path, *words, code=code)).stderr


@requirement("session.asks.visible")
async def test_only_a_person_answers_asks_and_no_process_that_rookery_started() -> None:
    async with start_system_with_sessions("fix") as (system, (path,)):
        id_ = (await told(system, path, "new"))["id"]
        await run(system, path, "send", id_, "ask", "--no-wait")
        await system.until_all(lambda all_: all_["fix"]["attention"])
        (ask,) = await told(system, path, "asks")
        assert (ask["sessionId"], ask["kind"], ask["workspace"]) == (id_, "permission", "fix")
        assert "echo asked" in (await run(system, path, "asks", "fix")).stdout

        marked = os.environ | system.env | as_child(system.daemon)
        refused = await asyncio.to_thread(rookery, "session", "answer", ask["id"], "once", env=marked, cwd=path)
        assert refused.returncode == 4 and "was started by Rookery" in refused.stderr
        assert not (path / "asked.txt").exists()
        with at_a_terminal("session", "answer", "per_unknown", "once", cwd=path) as person:
            assert await asyncio.to_thread(person.ends) == 3, person.text
        with at_a_terminal("session", "answer", ask["id"], "once", cwd=path) as person:
            assert await asyncio.to_thread(person.ends) == 0, person.text
        await run(system, path, "wait", id_, "--message", "Done", "--timeout", "120")
        assert (path / "asked.txt").read_text() == "asked\n"
        assert (await run(system, path, "asks")).stdout == "no question is waiting\n"
