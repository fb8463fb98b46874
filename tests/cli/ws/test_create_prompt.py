"""`rookery ws create --prompt` and `--no-agent`, with the real daemon, OpenCode and scripted model."""

import json
from pathlib import Path

import pytest

from tests.support.agents.launch import config_with
from tests.support.cli.workspaces import app, run
from tests.support.daemon.process import Daemon
from tests.support.daemon.system import is_ready, start_system
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, requirement("ws.cli.verbs", "ws.create.barrier"), pytest.mark.timeout(1500)]

SCRIPT = {"turn": [{"when": "hello", "step": [{"say": "Good morning."}]}]}


async def test_progress_is_shown_until_the_prompt_is_sent_and_it_is_kept_without_a_model(tmp_path: Path) -> None:
    checkout = make_repository(tmp_path / "app")
    async with start_system(SCRIPT, checkout) as system:
        done = await system.cli("ws", "create", "fix", "--prompt", "hello", cwd=checkout)
        assert done.returncode == 0, done.stderr
        told = done.stderr.splitlines()
        assert told[0] == "creating fix ..."
        assert "starting OpenCode ..." in told
        assert told[-1] == "the agent works on the prompt; open it: rookery agent attach fix"
        # The turn runs, so that a script can wait for its end.
        waited = await system.cli("session", "wait", "fix", "--idle", "--timeout", "300", cwd=checkout)
        assert waited.returncode == 0, waited.stderr
        assert "Good morning." in (await system.cli("session", "messages", "fix", cwd=checkout)).stdout
        shown = json.loads((await system.cli("ws", "show", "fix", "--json", cwd=checkout)).stdout)
        assert done.stdout == f"{shown['path']}\n" and is_ready(shown)
        listed = (await system.cli("ws", "list", cwd=checkout)).stdout.splitlines()
        assert listed[2].split()[:4] in (["fix", "fix", "ready", "idle"], ["fix", "fix", "ready", "busy"])

        none = await system.cli("ws", "create", "plain", "--no-agent", cwd=checkout)
        assert none.returncode == 0, none.stderr
        plain = json.loads((await system.cli("ws", "show", "plain", "--json", cwd=checkout)).stdout)
        assert (plain["agent"]["state"], plain["agent"]["pid"], plain["mcp"]["server_running"]) == (
            "stopped",
            None,
            True,
        )

        # A user who allows a provider that they are not signed in to.
        config = Path.home() / ".config" / "opencode" / "opencode.json"
        config.write_text(config_with(enabled_providers=["anthropic"]))
        held = await system.cli("ws", "create", "other", "--prompt", "hello", cwd=checkout)
        assert held.returncode == 3, held.stderr
        assert "other was created, but its agent did not get the prompt" in held.stderr
        assert "rookery agent login" in held.stderr and "rookery agent restart other" in held.stderr
        needy = json.loads((await system.cli("ws", "list", "--attention", "--json", cwd=checkout)).stdout)
        assert [(one["name"], one["attention"][0]["reason"]) for one in needy] == [("other", "prompt-not-sent")]


async def test_without_a_provider_that_answers_it_is_said_with_the_remedy_and_exit_code_3(tmp_path: Path) -> None:
    checkout = make_repository(tmp_path / "app")
    # Nobody is signed in, and the models that are for everybody cannot be reached.
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    async with start_system(SCRIPT, checkout, settings=nowhere) as system:
        (Path.home() / ".config" / "opencode" / "opencode.json").write_text(config_with())
        done = await system.cli("ws", "create", "fix", "--prompt", "hello", cwd=checkout)
        assert done.returncode == 3, done.stderr
        assert "no model provider is signed in" in done.stderr and "rookery agent login" in done.stderr
        needy = json.loads((await system.cli("ws", "list", "--attention", "--json", cwd=checkout)).stdout)
        assert [(one["name"], one["attention"][0]["reason"]) for one in needy] == [("fix", "no-provider")]
        assert "rookery agent login" in needy[0]["attention"][0]["text"]
        # OpenCode asks again and again, and that is no work.
        assert needy[0]["agent"]["activity"] == "waiting"


async def test_a_prompt_is_kept_without_a_login_if_the_free_models_are_unreachable(tmp_path: Path) -> None:
    checkout = make_repository(tmp_path / "app")
    async with start_system(SCRIPT, checkout) as system:
        nowhere = {"opencode": {"options": {"baseURL": "http://127.0.0.1:9/v1"}}}
        (Path.home() / ".config" / "opencode" / "opencode.json").write_text(config_with(provider=nowhere))
        done = await system.cli("ws", "create", "fix", "--prompt", "hello", cwd=checkout)
        assert done.returncode == 3, done.stderr
        told = done.stderr.splitlines()
        assert "its first prompt is being sent ..." in told[told.index("starting OpenCode ...") :]
        assert "fix was created, but its agent did not get the prompt: no model provider is signed in" in told[-1]
        assert "rookery agent login" in told[-1] and "rookery agent restart fix" in told[-1]
        shown = json.loads((await system.cli("ws", "show", "fix", "--json", cwd=checkout)).stdout)
        assert (shown["agent"]["activity"], shown["agent"]["detail"]) == ("queued", None)
        assert [one["reason"] for one in shown["attention"]] == ["prompt-not-sent"]
        listed = (await system.cli("ws", "list", cwd=checkout)).stdout.splitlines()
        assert listed[2].split()[:4] == ["fix", "fix", "ready", "queued"]
        assert await system.rest("GET", "/api/sessions") == []


def test_a_prompt_that_nobody_could_read_is_refused_before_anything_is_made(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    both = run("create", "fix", "--prompt", "hello", "--no-agent", cwd=checkout)
    assert both.returncode == 2 and "--no-agent" in both.stderr
    empty = run("create", "fix", "--prompt", " ", cwd=checkout)
    assert empty.returncode == 2 and "the prompt is empty" in empty.stderr
    assert run("path", "fix", cwd=checkout).returncode == 3
