"""The agent of docs/guide/python-agent.py: as a user runs it, and with a model that makes mistakes."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rookery.testing.model import scripted_model
from tests.sdk.test_hub import a_hub
from tests.support.daemon.process import SECONDS, rookery
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = pytest.mark.anyio

FILE = Path(__file__).parents[2] / "docs" / "guide" / "python-agent.py"


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("python_agent", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@requirement("hub.python.contract", "hub.python.text")
def test_it_runs_as_it_stands_without_a_key_and_without_a_network() -> None:
    app = make_repository(Path.home() / "src" / "app")
    (app / "only-here.txt").write_text("x")
    try:
        done = subprocess.run(
            [sys.executable, FILE], cwd=app, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("I see: ") and "only-here.txt" in done.stdout
        assert 'list_directory {"path":"."}' in done.stderr
    finally:
        assert rookery("down").returncode == 0


@requirement("hub.python.contract", "hub.python.text", "hub.python.attachments", "hub.find.tool")
async def test_the_loop_passes_errors_to_the_model_and_goes_on_with_tools_of_servers() -> None:
    steps: list[dict[str, Any]] = [
        {"call": "files__nothing", "expect_tools": ["files__show", "other__echo"]},
        {"call": "files__break", "expect": "there is no tool 'files__nothing'"},
        {"call": "files__show", "expect": "no such file"},
        {"say": "At last: {{result}}", "expect": ["one", "two", "hello"]},
    ]
    agent = loaded()
    async with a_hub() as (r, _, _), scripted_model({"step": steps}) as model:
        tools = await r.hub.tools()
        answer = await agent.answer_of(model.url, tools, "Do it.")
        assert answer.startswith("At last: one") and not model.requests.unforeseen
        # A model need not be shown all of them.
        found = await r.hub.find("read something")
        assert next(iter(found)) == "files__read"
        assert "path" in (await found["files__read"].execute({"path": "a"})).text
        assert found["files__read"].for_openai() == tools["files__read"].for_openai()
        assert len(await r.hub.find("echo read show hold", limit=2)) == 2 and await r.hub.find("zebra") == {}
        bad = {"id": "1", "function": {"name": "files__read", "arguments": "{"}}
        assert (await agent.run(tools, bad))["content"].startswith("it failed")
        endless = {"conversation": [{"turn": [{"step": [{"call": "files__show"}] * 25 + [{"say": "x"}]}]}]}
        model.play(endless)
        with pytest.raises(RuntimeError, match="no answer after"):
            await agent.answer_of(model.url, tools, "Again.")
