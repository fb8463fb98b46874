"""The config files that Rookery writes, and the user's own files that it reads."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from rookery.agents.opencode.config import (
    UserConfig,
    prepare_config_file,
    read_user_config,
    render_config_file,
    write_config_file,
)
from rookery.system.errors import RookeryError
from rookery.upstreams.config.jsonc import parse_jsonc, to_python
from tests.support.requirements import requirement


def read(text: str) -> Any:
    return to_python(parse_jsonc(text))


@requirement("agent.config.file")
def test_the_generated_file_is_written_anew_whatever_was_there(state: Path) -> None:
    path = write_config_file(state)
    assert path == state / "opencode" / "rookery-mcp.json"
    path.write_text("{broken")
    assert write_config_file(state).read_bytes() == render_config_file()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert prepare_config_file(state, UserConfig()) == path


@requirement("agent.env.user", "agent.config.merged")
def test_a_users_own_file_is_merged_into_another_one_and_stays_as_it_is(state: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonc"
    text = '{"username": "zed", // mine\n "plugin": ["./p.js"],}'
    mine.write_text(text)
    user = read_user_config({"OPENCODE_CONFIG": str(mine), "OPENCODE_CONFIG_CONTENT": '{"model": "a/b",}'}, read)
    assert user.content == {"model": "a/b"}
    path = prepare_config_file(state, user)
    found = json.loads(path.read_bytes())
    assert path.parent == state / "opencode"
    assert (found["username"], found["plugin"]) == ("zed", [(tmp_path / "p.js").as_uri()])
    assert found["mcp"] == json.loads(render_config_file())["mcp"]
    assert mine.read_text() == text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("content", "told"), [("{broken", "is not JSON: line 1"), ("[1]", "is not a JSON object"), ('"x"', "is not a JSON")]
)
def test_a_broken_inline_config_is_named(content: str, told: str) -> None:
    with pytest.raises(RookeryError, match=f"OPENCODE_CONFIG_CONTENT {told}"):
        read_user_config({"OPENCODE_CONFIG_CONTENT": content}, read)


def test_a_file_that_is_not_there_is_none_and_one_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert read_user_config({"OPENCODE_CONFIG": str(tmp_path / "gone.json")}, read) == UserConfig()
    with pytest.raises(RookeryError, match="OPENCODE_CONFIG cannot be read"):
        read_user_config({"OPENCODE_CONFIG": str(tmp_path)}, read)


def test_a_relative_path_is_left_out_since_it_would_name_something_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "evil.json").write_text('{"plugin": ["./evil.js"]}')
    monkeypatch.chdir(tmp_path)
    assert read_user_config({"OPENCODE_CONFIG": "evil.json"}, read) == UserConfig()
    assert "not an absolute path" in caplog.text
