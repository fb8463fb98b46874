"""`notify.command` runs for every kind of attention, with a real daemon, and its failures are reported."""

import ast
import asyncio
import json
import os
import shutil
import signal
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.agents.launch import config_with
from tests.support.cli.user import at_a_terminal
from tests.support.cli.workspaces import app, made, ws
from tests.support.daemon.events import Reader
from tests.support.daemon.notify import Page, Pager
from tests.support.daemon.process import rookery, up
from tests.support.daemon.system import is_ready, start_system
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1500)]

# Each is proven here or, for those that a turn comes to by itself, in tests/agents/test_activity.py.
KINDS = {"missing", "failed", "needs-approval", "conflicts", "agent-failed", "interrupted", "prompt-not-sent"} | {
    "permission",
    "question",
    "turn-failed",
    "no-provider",
}
SOURCE = Path(__file__).parents[3] / "src" / "rookery"
OUTSIDE = {"call": "read", "with": {"filePath": "/etc/hostname"}}
SCRIPT = {
    "conversation": [
        {"when": "permit", "turn": [{"step": [OUTSIDE, {"say": "read"}]}]},
        {"when": "work", "turn": [{"step": [{"say": "Never said.", "hold": "for ever"}]}]},
    ]
}


def test_every_kind_of_attention_is_known_here() -> None:
    """`permission` and `question` are the kinds of asks, and `no-provider` is the code of an error."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Need":
                first = node.args[0]
                found.add(str(first.value) if isinstance(first, ast.Constant) else ast.unparse(first))
    assert found == KINDS - {"failed", "permission", "question", "no-provider"} | {"reason", "ask.kind", "error.code"}


@requirement("ws.notify.fires")
def test_the_command_runs_for_what_a_workspace_needs_without_an_agent(tmp_path: Path) -> None:
    with Pager(tmp_path) as pager:
        up(env={"ROOKERY_NOTIFY_COMMAND": pager.command, "ROOKERY_NOTIFY_CHECK_SECONDS": "0.5"})
        setup = {".rookery/config.toml": '[workspace]\nsetup = "exit 3"\n'}
        untrusted = app(tmp_path / "untrusted", setup)
        ws("create", "broken", "--no-agent", cwd=untrusted, code=3)
        assert pager.next().reasons == ("needs-approval",)
        with at_a_terminal("guard", "approve", "setup", cwd=untrusted) as person:
            person.reads("[y/N] ")
            person.types("y\n")
            assert person.ends() == 0, person.text
        assert pager.next().reasons == ("failed",)

        checkout = app(tmp_path / "app", {"a.txt": "one\n"})
        gone, clash = (made(name, "--no-agent", cwd=checkout) for name in ("gone", "clash"))
        shutil.rmtree(gone)
        assert pager.until(lambda page: page.name == "gone").reasons == ("missing",)
        for folder, text in ((checkout, "two"), (clash, "three")):
            (folder / "a.txt").write_text(f"{text}\n")
            git(folder, "commit", "-qam", text)
        page = pager.until(lambda page: page.name == "clash")
        assert page.reasons == ("conflicts",) and "a.txt" in page.given["attention"][0]["text"]
        assert page.path == str(clash) == page.given["path"]
        assert rookery("down").returncode == 0


@requirement("ws.notify.fires")
async def test_the_command_runs_for_what_an_agent_needs(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "app", {"opencode.json": "{}"})
    settings = {"HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    with Pager(tmp_path) as pager:
        settings |= {"ROOKERY_NOTIFY_COMMAND": pager.command}
        async with start_system(SCRIPT, repository, settings=settings) as system:
            await system.create("asks", "permit")
            assert (await page_of(pager, "asks", "permission")).name == "asks"
            # Another config than the one that was approved when the project was added.
            (repository / "opencode.json").write_text(config_with(username="somebody"))
            git(repository, "commit", "-qam", "configure")
            cut = await system.create("cut", "work")
            shown = await system.until(cut, lambda one: one["activity"] == "working")
            assert (await page_of(pager, "cut", "needs-approval")).given["agent"]["notes"]
            os.kill(shown["agent"]["pid"], signal.SIGKILL)
            await page_of(pager, "cut", "agent-failed")
            await page_of(pager, "cut", "interrupted")
            await system.until(cut, is_ready)
            config = Path.home() / ".config" / "opencode" / "opencode.json"
            config.write_text(config_with(enabled_providers=["anthropic"]))
            await system.rest("POST", "/api/workspaces", {"name": "mute", "prompt": "hello"})
            page = await page_of(pager, "mute", "prompt-not-sent")
            assert "rookery agent login" in str(page.given["attention"])
            # Nobody is signed in, and the models that are for everybody cannot be reached.
            config.write_text(config_with())
            await system.rest("POST", "/api/workspaces", {"name": "free", "prompt": "hello"})
            page = await page_of(pager, "free", "no-provider")
            assert "rookery agent login" in str(page.given["attention"])


async def page_of(pager: Pager, name: str, reason: str) -> Page:
    """The run of the command for this reason."""
    wanted = pager.until
    return await asyncio.to_thread(wanted, lambda page: page.name == name and reason in page.reasons)


@requirement("ws.notify.fires")
def test_a_command_that_fails_is_shown_with_what_it_printed_last_until_it_succeeds(tmp_path: Path) -> None:
    works = tmp_path / "works"
    command = f"echo asked; test -e {works} || {{ echo first >&2; echo no screen here >&2; exit 3; }}"
    daemon = up(env={"ROOKERY_NOTIFY_COMMAND": command})
    with closing(Reader(daemon, "/api/logs")) as logs:
        folder = app(tmp_path / "app", {".rookery/config.toml": '[workspace]\nsetup = "exit 3"\n'})
        for count, name in enumerate(("one", "two"), 1):
            ws("create", name, "--no-agent", cwd=folder, code=3)
            _until_logged(logs, "the notify command ended with 3")
            failure = json.loads(rookery("status", "--json").stdout)["daemon"]["notify_failure"]
            assert (failure["count"], failure["error"], failure["line"]) == (count, "ended with 3", "no screen here")
        told = "notify.command failed 2 times in a row"
        printed = "ended with 3; last output: no screen here"
        shown = " ".join(rookery("status").stdout.split())
        assert told in shown and printed in shown
        check = _check("notify")
        assert check["status"] == "warning" and told in check["summary"] and printed in check["summary"]
        assert "rookery config set notify.command" in check["remedy"]

        works.touch()
        ws("create", "three", "--no-agent", cwd=folder, code=3)
        _until_logged(logs, "the notify command works again")
    assert json.loads(rookery("status", "--json").stdout)["daemon"]["notify_failure"] is None
    assert "notify.command" not in rookery("status").stdout
    assert rookery("down").returncode == 0


def _until_logged(logs: Reader, words: str) -> None:
    while words not in logs.until("log")["data"]["message"]:
        pass


def _check(name: str) -> dict[str, str]:
    return {one["id"]: one for one in json.loads(rookery("doctor", "--json").stdout)["checks"]}[name]


@requirement("ws.notify.fires")
def test_a_background_task_that_crashes_goes_on_and_is_shown(tmp_path: Path) -> None:
    with Pager(tmp_path) as pager:
        daemon = up(env={"ROOKERY_NOTIFY_COMMAND": pager.command, "ROOKERY_FAULT": "raise:notify.heard"})
        folder = app(tmp_path / "app", {".rookery/config.toml": '[workspace]\nsetup = "exit 3"\n'})
        ws("create", "task", "--no-agent", cwd=folder, code=3)
        # The first event crashed the task; the command is run all the same.
        assert pager.next().reasons == ("needs-approval",)
        crash = json.loads(rookery("status", "--json").stdout)["daemon"]["crashes"][0]
        assert (crash["task"], crash["count"], crash["restarted"]) == ("upkeep:notify events", 1, True)
        assert "the fault point notify.heard" in crash["error"] and crash["at"]
        assert "the background task upkeep:notify events crashed once, restarted" in rookery("status").stdout
        checks = {one["id"]: one for one in json.loads(rookery("doctor", "--json").stdout)["checks"]}
        assert checks["tasks"]["status"] == "warning" and "upkeep:notify events" in checks["tasks"]["summary"]
        assert "upkeep:notify events crashed once" in rookery("doctor").stdout
        metrics = daemon.http("GET", "/metrics").body.decode()
        assert "rookery_task_crashes_total 1" in metrics
        assert 'rookery_task_restarts_total{task="upkeep:notify events"} 1' in metrics
        assert rookery("down").returncode == 0


def test_without_a_crash_the_doctor_says_so() -> None:
    up()
    try:
        checks = {one["id"]: one for one in json.loads(rookery("doctor", "--json").stdout)["checks"]}
        assert checks["tasks"]["status"] == "ok"
        assert json.loads(rookery("status", "--json").stdout)["daemon"]["crashes"] == []
    finally:
        assert rookery("down").returncode == 0
