"""The script of the demo can be played, and its project matches the script."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rookery.demo.scenario import FILES, TASKS, TICKET_TOOL, build_script, build_user_files
from rookery.demo.tickets import handle_request
from rookery.testing.load import parse_script
from rookery.testing.player import Player
from tests.support.agents.completions import asked, user


def reply(text: str) -> Any:
    return Player(parse_script(build_script())).reply_to(asked([user(text)]))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.workspace)
def test_each_agent_reads_its_ticket_first_and_runs_the_tests_last(task: Any) -> None:
    assert [task.tools[0], task.tools[-1]] == [TICKET_TOOL, "bash"]
    played = reply(task.prompt)
    assert [call.call for call in played.calls] == [TICKET_TOOL]
    told = handle_request("tools/call", {"arguments": played.calls[0].arguments})
    assert told is not None and task.steps[1]["expect"] in told["content"][0]["text"]


def test_whatever_else_is_said_the_model_tells_what_it_is() -> None:
    played = reply("Sing!")
    assert 'You said: "Sing!"' in played.text
    assert "scripted model" in played.text


def test_the_tests_of_the_project_pass_as_it_is(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run([sys.executable, "-m", "unittest"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "OK" in done.stderr


def test_the_user_of_the_demo_has_one_server_and_one_model() -> None:
    files = build_user_files("http://127.0.0.1:1/v1")
    server = json.loads(files[".config/rookery/mcp.json"])["servers"]["tickets"]
    assert Path(server["command"][-1]).is_file()
    opencode = json.loads(files[".config/opencode/opencode.json"])
    assert opencode["enabled_providers"] == ["scripted"]
    assert opencode["provider"]["scripted"]["options"]["baseURL"] == "http://127.0.0.1:1/v1"


def test_a_ticket_that_does_not_exist_is_an_error_of_the_tool() -> None:
    told = handle_request("tools/call", {"arguments": {"number": 3}})
    assert told is not None and told["isError"] is True
    assert handle_request("resources/list", {}) is None
