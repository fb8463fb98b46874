"""Just tasks through the daemon: listed, run, confirmed and ended, for clients of both eras."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rookery.daemon.settings.schema import JustSettings, Settings
from rookery.system.ids import project_id
from tests.support.clock import let_pass
from tests.support.daemon.process import alive, wait_dead
from tests.support.gateway.gateway import Gateway, start_gateway, view_of
from tests.support.gateway.sdk_client import WAYS, open_workspace_client
from tests.support.mcp.caller import ERAS, HANDSHAKE, MODERN, Caller, Message, failure, told, words
from tests.support.mcp.client import LIMIT
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = pytest.mark.anyio

JUSTFILE = """
import 'more.just'

# says a word
say word='nothing' $loud='no':
  @echo {{quote(word)}} $loud

bad:
  @echo before; exit 7

where:
  @pwd; echo $ROOKERY_WORKSPACE_NAME; echo ${ROOKERY_TOKEN:-no token}

hang:
  @echo $$ > own; echo begun; exec sleep 600

[confirm('wipe it?')]
wipe:
  touch wiped
"""


@asynccontextmanager
async def a_place(**just: Any) -> AsyncGenerator[tuple[Gateway, Path]]:
    """A gateway at a project with tasks, approved by adding it."""
    app = make_repository(Path.home() / "src" / "app", {"justfile": JUSTFILE, "more.just": "more:\n  @echo more\n"})
    os.mkfifo(app / "own")
    async with start_gateway(None, app, settings=Settings(just=JustSettings(**just))) as gateway:
        yield gateway, app


async def begun(pipe: Path) -> int:
    """The process that wrote its number there."""
    async with asyncio.timeout(LIMIT):
        return int(await asyncio.to_thread(pipe.read_text))


async def ended(pid: int) -> None:
    await asyncio.to_thread(wait_dead, pid)
    assert not alive(pid)


@requirement("just.list.tasks", "just.run.task")
@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_the_tasks_are_those_of_the_workspace_that_the_client_is_in(way: str, mode: str) -> None:
    async with open_workspace_client(way, mode) as face:
        assert await face.tell("list_just_tasks") == {"tasks": [], "approved": False}
        assert await face.fail("run_just_task", task_name="say") == "task-not-found"
        (face.path / "justfile").write_text("say:\n  @pwd\n")
        assert (await face.tell("list_just_tasks"))["tasks"][0]["name"] == "say"
        assert await face.fail("run_just_task", task_name="say") == "needs-approval"


@requirement("just.list.tasks", "just.run.task")
@pytest.mark.parametrize("era", ERAS)
async def test_a_task_answers_its_output_exit_code_and_duration(era: str) -> None:
    async with a_place() as (gateway, app):
        path = (await gateway.workspaces.create(project_id(app), "fix")).path
        caller = await gateway.caller(f"/w/{project_id(app)}/fix/mcp", era)
        listed = told(await caller.call("list_just_tasks"))
        assert listed["approved"] is True
        tasks = {one["name"]: one for one in listed["tasks"]}
        assert list(tasks) == ["bad", "hang", "more", "say", "where", "wipe"]
        assert tasks["say"]["description"] == "says a word" and tasks["wipe"]["confirm"] == ["wipe: wipe it?"]
        assert [(one["name"], one["default"], one["required"]) for one in tasks["say"]["parameters"]] == [
            ("word", "nothing", False),
            ("loud", "no", False),
        ]
        for given in (["hello; $(x)", "yes"], {"word": "hello; $(x)", "loud": "yes"}):
            result = (await caller.call("run_just_task", {"task_name": "say", "arguments": given}))["result"]
            output, note = [one["text"] for one in result["content"]]
            assert output == "hello; $(x) yes\n" and note.startswith("[say: exit code 0 after ")
            about = result["_meta"]["rookery/task"]
            assert about.items() >= {"task": "say", "exit_code": 0, "cut_bytes": 0}.items() and about["seconds"] > 0
            assert "isError" not in result and "structuredContent" not in result
        where = await caller.call("run_just_task", {"task_name": "where"})
        assert words(where).splitlines() == [str(path), "fix", "no token"]


@requirement("just.run.failing", "just.run.listed")
@pytest.mark.parametrize("era", ERAS)
async def test_p28_a_task_that_fails_or_is_none_is_a_failed_result(era: str) -> None:
    async with a_place() as (gateway, app):
        caller = await gateway.caller(view_of(app), era)
        bad = await caller.call("run_just_task", {"task_name": "bad"})
        assert failure(bad) == "task-failed"
        output, note = [one["text"] for one in bad["result"]["content"]]
        assert output.startswith("before\n") and note.startswith("[bad: exit code 7 after ")
        assert bad["result"]["_meta"]["rookery/task"]["exit_code"] == 7
        for name in ("none", "-f", "--list", "say; touch x", "", "../say"):
            assert failure(await caller.call("run_just_task", {"task_name": name})) == "task-not-found"
        for given in (
            {},
            {"task_name": 1},
            {"task_name": "say", "arguments": ["a", "b", "c"]},
            {"task_name": "say", "x": 1},
        ):
            assert failure(await caller.call("run_just_task", given)) == "invalid-input"
        (app / "justfile").write_text("say:\n  echo {{x\n")
        broken = await caller.call("list_just_tasks")
        assert failure(broken) == "invalid-input" and "the justfile cannot be read" in words(broken)


@requirement("just.run.bounds")
@pytest.mark.parametrize("era", ERAS)
async def test_b38_a_task_tells_progress_and_ends_at_its_time_limit(era: str) -> None:
    async with a_place(seconds=600.0) as (gateway, app):
        caller = await gateway.caller(view_of(app), era)
        given = {"task_name": "hang", "timeout": 10_000}
        calling = caller.begin("run_just_task", given, progressToken="p")
        pid = await begun(app / "own")
        await caller.hears("notifications/progress", 2)
        let_pass(10)
        answer = await calling
        assert failure(answer) == "timeout" and words(answer).startswith("begun\n")
        told = caller.all("notifications/progress")
        assert told and {one["params"]["message"] for one in told} == {"begun"}
        numbers = [one["params"]["progress"] for one in told]
        assert numbers == sorted(set(numbers)) and {one["params"]["progressToken"] for one in told} == {"p"}
        await ended(pid)


@requirement("just.run.bounds")
async def test_b38_a_task_ends_when_its_client_cancels_or_leaves_or_its_workspace_closes() -> None:
    async with a_place() as (gateway, app):
        old = await gateway.old_caller(view_of(app))
        calling = old.begin("run_just_task", {"task_name": "hang"}, id_=77)
        pid = await begun(app / "own")
        await old.cancel(77)
        await ended(pid)
        calling.cancel()
        new = await gateway.caller(view_of(app))
        calling = new.begin("run_just_task", {"task_name": "hang"})
        pid = await begun(app / "own")
        calling.cancel()
        await ended(pid)
        calling = new.begin("run_just_task", {"task_name": "hang"})
        pid = await begun(app / "own")
        await gateway.workspaces.close(await gateway.workspaces.at(app))
        await ended(pid)
        assert failure(await calling) == "workspace-not-found"


async def _accept(_: Message) -> Message:
    return {"action": "accept", "content": {}}


async def _decline(_: Message) -> Message:
    return {"action": "decline"}


@requirement("just.run.confirm")
async def test_a_client_of_the_handshake_era_is_asked_before_a_confirm_task_runs() -> None:
    async with a_place() as (gateway, app):
        caller = await gateway.old_caller(view_of(app))
        caller.answers["elicitation/create"] = _decline
        assert failure(await caller.call("run_just_task", {"task_name": "wipe"})) == "tool-denied"
        assert not (app / "wiped").exists()
        caller.answers["elicitation/create"] = _accept
        assert "isError" not in (await caller.call("run_just_task", {"task_name": "wipe"}))["result"]
        assert (app / "wiped").exists()
        assert "wipe it?" in caller.asked[0]["params"]["message"] and len(caller.asked) == 2


@requirement("just.run.confirm")
async def test_b39_a_modern_client_is_asked_and_its_yes_counts_for_what_it_was_asked_about() -> None:
    async with a_place(approval="never") as (gateway, app):
        caller = await gateway.caller(view_of(app))

        async def ask(**more: Any) -> Message:
            params = {"name": "run_just_task", "arguments": {"task_name": "wipe"}, **more}
            return (await caller.ask("tools/call", params))["result"]

        first = await ask()
        assert first["resultType"] == "input_required"
        (key,) = first["inputRequests"]
        assert "wipe it?" in first["inputRequests"][key]["params"]["message"]
        yes = {"inputResponses": {key: await _accept({})}, "requestState": first["requestState"]}
        (app / "justfile").write_text(JUSTFILE.replace("touch wiped", "touch wiped more"))
        again = await ask(**yes)
        assert again["resultType"] == "input_required" and again["inputRequests"].keys() != {key}
        assert not (app / "wiped").exists()
        (app / "justfile").write_text(JUSTFILE)
        no = {"inputResponses": {key: await _decline({})}, "requestState": first["requestState"]}
        assert (await ask(**no))["structuredContent"]["error"]["code"] == "tool-denied"
        assert not (app / "wiped").exists()
        assert "isError" not in await ask(**yes)
        assert (app / "wiped").exists()


@requirement("just.run.confirm")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
@pytest.mark.parametrize("able", [{}, {"elicitation": {"url": {}}}], ids=json.dumps)
async def test_where_nobody_can_be_asked_a_confirm_task_is_refused_in_words(era: str, able: dict[str, Any]) -> None:
    async with a_place() as (gateway, app):
        caller: Caller = await gateway.caller(view_of(app), era, able=able)
        answer = await caller.call("run_just_task", {"task_name": "wipe"})
        assert failure(answer) == "needs-approval"
        assert "this client cannot ask its user" in words(answer) and "just wipe" in words(answer)
        assert not (app / "wiped").exists()


@requirement("servers.env.settings")
@pytest.mark.parametrize(("value", "passed_on"), [("", False), ("DATABASE_*", True), ("*", True)])
async def test_c18_a_setting_decides_what_tasks_get_of_the_environment(
    value: str, passed_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres:")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "HTTPS_PROXY", "ROOKERY_TOKEN"):
        monkeypatch.setenv(name, f"my {name}")
    shown = 'show:\n  @echo "$DISPLAY, $WAYLAND_DISPLAY, $XAUTHORITY, $HTTPS_PROXY, ${ROOKERY_TOKEN:-no token}"\n'
    justfile = shown + "url:\n  @set -u; echo $DATABASE_URL\n"
    app = make_repository(Path.home() / "src" / "app", {"justfile": justfile})
    async with start_gateway(None, app, settings=Settings(just=JustSettings(env=value))) as gateway:
        caller = await gateway.caller(view_of(app))
        found = words(await caller.call("run_just_task", {"task_name": "show"}))
        assert found.strip() == "my DISPLAY, my WAYLAND_DISPLAY, my XAUTHORITY, my HTTPS_PROXY, no token"
        found = str(await caller.call("run_just_task", {"task_name": "url"}))
        assert ("postgres:" in found) is passed_on
        reduced = (
            "its environment was reduced: DATABASE_URL is set where Rookery was started, but not passed on; "
            "to pass it on: rookery config set just.env"
        )
        assert (reduced in found) is not passed_on
