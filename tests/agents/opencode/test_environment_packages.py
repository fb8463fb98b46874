"""The user's files show whether OpenCode may need packages from npm when it starts."""

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.agents.opencode.environment import needs_packages
from tests.support.agents.launch import read_jsonc

CONFIG = ".config/opencode"


def needs(home: Path, *, project_config: bool = False, **environment: str) -> bool:
    user = {"HOME": str(home), **environment}
    return needs_packages(
        user, home / "workspace", project_config=project_config, read=read_jsonc, managed=home / "etc"
    )


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_a_user_without_plugins_needs_none(tmp_path: Path) -> None:
    assert not needs(tmp_path)
    write(tmp_path / CONFIG / "opencode.json", {"username": "zed", "plugin": []})
    write(tmp_path / ".local/share/opencode/auth.json", {"anthropic": {"type": "api", "key": "k"}})
    assert not needs(tmp_path, OPENCODE_CONFIG="/nowhere", OPENCODE_CONFIG_CONTENT='{"share": "disabled"}')


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (f"{CONFIG}/opencode.jsonc", '{"plugin": ["one"]} // mine'),
        (f"{CONFIG}/config.json", {"plugin": [["one", {"a": 1}]]}),
        (f"{CONFIG}/opencode.json", "{broken"),
        (f"{CONFIG}/plugin/mine.js", ""),
        (f"{CONFIG}/plugins/mine.ts", ""),
        (f"{CONFIG}/tool/mine.ts", ""),
        (f"{CONFIG}/tools/mine.js", ""),
        (".opencode/plugin/mine.js", ""),
        (".opencode/opencode.json", {"plugin": ["one"]}),
        ("etc/opencode.json", {}),
        # An address that gives its own config.
        (".local/share/opencode/auth.json", {"https://example.org": {"type": "wellknown", "key": "K", "token": "t"}}),
        # The package is there already: there is nothing to wait for.
        (f"{CONFIG}/node_modules/.package-lock.json", {}),
    ],
)
def test_plugins_tools_and_configs_from_elsewhere_may_need_some(tmp_path: Path, file: str, content: Any) -> None:
    write(tmp_path / file, content)
    assert needs(tmp_path)


def test_configs_that_variables_name_count(tmp_path: Path) -> None:
    write(tmp_path / "mine.json", {"plugin": ["one"]})
    write(tmp_path / "more/tool/mine.ts", "")
    assert needs(tmp_path, OPENCODE_CONFIG=str(tmp_path / "mine.json"))
    assert needs(tmp_path, OPENCODE_CONFIG_CONTENT='{"plugin": ["one"]}')
    assert needs(tmp_path, OPENCODE_CONFIG_DIR=str(tmp_path / "more"))


@pytest.mark.parametrize(
    ("file", "content"), [("opencode.json", {"plugin": ["one"]}), (".opencode/plugin/theirs.js", "")]
)
def test_the_repositorys_own_count_where_they_take_effect(tmp_path: Path, file: str, content: Any) -> None:
    write(tmp_path / "workspace" / file, content)
    assert not needs(tmp_path)
    assert needs(tmp_path, project_config=True)
