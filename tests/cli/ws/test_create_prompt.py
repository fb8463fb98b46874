"""`rookery ws create --prompt` and `--no-agent`, with the real daemon, OpenCode and scripted model."""

import json
from pathlib import Path

import pytest

from tests.support.agents import config_with
from tests.support.e2e import a_colony, is_ready
from tests.support.house import House
from tests.support.requirements import requirement
from tests.support.workspaces import make_repository
from tests.support.ws import app, run

pytestmark = [pytest.mark.anyio, requirement("ws.cli.verbs", "ws.create.barrier"), pytest.mark.timeout(300)]

SCRIPT = {"turn": [{"when": "hello", "step": [{"say": "Good morning."}]}]}


async def test_a_prompt_is_told_of_until_the_agent_has_it_and_kept_where_no_model_could_answer(tmp_path: Path) -> None:
    checkout = make_repository(tmp_path / "app")
    async with a_colony(SCRIPT, checkout) as colony:
        done = await colony.cli("ws", "create", "fix", "--prompt", "hello", cwd=checkout)
        assert done.returncode == 0, done.stderr
        told = done.stderr.splitlines()
        assert told[0] == "making fix ..."
        assert "OpenCode starts ..." in told
        assert told[-1] == "its agent works on the prompt; see it: rookery agent attach fix"
        await colony.asked(lambda record: record.user == "hello" and record.ended == "answered")
        shown = json.loads((await colony.cli("ws", "show", "fix", "--json", cwd=checkout)).stdout)
        assert done.stdout == f"{shown['path']}\n" and is_ready(shown)
        listed = (await colony.cli("ws", "list", cwd=checkout)).stdout.splitlines()
        assert listed[2].split()[:4] in (["fix", "fix", "ready", "idle"], ["fix", "fix", "ready", "busy"])

        # A user who allows a provider that they are not signed in to.
        config = Path.home() / ".config" / "opencode" / "opencode.json"
        config.write_text(config_with(enabled_providers=["anthropic"]))
        held = await colony.cli("ws", "create", "other", "--prompt", "hello", cwd=checkout)
        assert held.returncode == 3, held.stderr
        assert "other is made, but its agent did not get the prompt" in held.stderr
        assert "rookery agent login" in held.stderr and "rookery agent restart other" in held.stderr
        needy = json.loads((await colony.cli("ws", "list", "--attention", "--json", cwd=checkout)).stdout)
        assert [(one["name"], one["attention"][0]["reason"]) for one in needy] == [("other", "prompt-not-sent")]


def test_a_prompt_that_nobody_could_read_is_refused_before_anything_is_made(house: House, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    both = run("create", "fix", "--prompt", "hello", "--no-agent", cwd=checkout)
    assert both.returncode == 2 and "--no-agent" in both.stderr
    empty = run("create", "fix", "--prompt", " ", cwd=checkout)
    assert empty.returncode == 2 and "the prompt is empty" in empty.stderr
    assert run("path", "fix", cwd=checkout).returncode == 3
