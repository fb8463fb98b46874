"""The files that OpenCode would load from a repository: every change of them changes the approved content."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rookery.agents.opencode import project_config as module
from rookery.agents.opencode.project_config import ProjectConfig, read_project_config
from rookery.upstreams.config.jsonc import parse_jsonc, to_python
from tests.support.requirements import requirement


def read(text: str) -> Any:
    return to_python(parse_jsonc(text))


def look(root: Path) -> ProjectConfig:
    found = read_project_config(root, read)
    assert found is not None
    return found


def write(root: Path, name: str, text: str = "text") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@requirement("agent.config.project")
def test_a_repository_without_opencode_config_has_nothing_to_approve(tmp_path: Path) -> None:
    write(tmp_path, "AGENTS.md")
    write(tmp_path, "src/opencode.json", "{}")
    assert read_project_config(tmp_path, read) is None


@requirement("agent.config.project")
@pytest.mark.parametrize(
    "name",
    [
        "opencode.json",
        "opencode.jsonc",
        ".opencode/opencode.json",
        ".opencode/plugin/a.js",
        ".opencode/plugins/a.ts",
        ".opencode/tool/a.ts",
        ".opencode/command/deep/er/a.md",
        ".opencode/agent/a.md",
        ".opencode/mode/a.md",
        ".opencode/skill/x/SKILL.md",
        ".opencode/lib/loaded-by-a-plugin.js",
    ],
)
def test_c24_whatever_takes_effect_is_part_of_the_content(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, name, "{}")
    before = look(tmp_path)
    assert list(before.files) == [name]
    path.write_text('{"model": "x/y"}')
    assert look(tmp_path).files != before.files


def test_c24_the_configs_are_shown_as_they_stand(tmp_path: Path) -> None:
    write(tmp_path, "opencode.jsonc", '{"model": "x/y"} // mine\n')
    write(tmp_path, ".opencode/opencode.json", "{}")
    assert look(tmp_path).content == '// opencode.jsonc\n{"model": "x/y"} // mine\n// .opencode/opencode.json\n{}'


@pytest.mark.parametrize(
    "config",
    [
        {"plugin": ["./tools/evil.js"]},
        {"plugin": [["./tools/evil.js", {"a": 1}]]},
        {"plugin": ["./tools/evil"]},
        {"plugin": ["./tools"]},
        {"formatter": {"x": {"command": ["sh", "-c", "node tools/evil.js; true"]}}},
        {"mcp": {"x": {"type": "local", "command": ["node", "tools/evil.js"]}}},
        {"provider": {"x": {"options": {"apiKey": "{file:tools/evil.js}"}}}},
        {"plugin": ["file://{root}/tools/evil.js"]},
    ],
)
def test_c24_files_that_a_config_names_are_part_of_it(config: dict[str, Any], tmp_path: Path) -> None:
    # Escaped, so that a look at the text alone would not see the path.
    text = json.dumps(config).replace("{root}", str(tmp_path)).replace("evil", "\\u0065vil")
    write(tmp_path, "opencode.json", text)
    named = write(tmp_path, "tools/evil.js")
    before = look(tmp_path)
    assert set(before.files) == {"opencode.json", "tools/evil.js"}
    named.write_text("other")
    assert look(tmp_path).files != before.files


def test_what_opencode_writes_itself_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, ".opencode/plugin/a.js")
    before = look(tmp_path)
    own = {"@opencode-ai/plugin": "1.18.33"}
    write(tmp_path, ".opencode/package.json", json.dumps({"dependencies": own}))
    write(tmp_path, ".opencode/package-lock.json")
    write(tmp_path, ".opencode/.gitignore")
    write(tmp_path, ".opencode/node_modules/x/index.js")
    assert look(tmp_path) == before
    write(tmp_path, ".opencode/package.json", json.dumps({"name": "x", "dependencies": {"left-pad": "1"}}))
    repositorys = look(tmp_path)
    assert repositorys != before
    write(tmp_path, ".opencode/package.json", json.dumps({"name": "x", "dependencies": {**own, "left-pad": "1"}}))
    assert look(tmp_path) == repositorys


def test_the_line_that_opencode_writes_into_a_config_changes_nothing(tmp_path: Path) -> None:
    config = write(tmp_path, "opencode.json", '\n{"model": "x/y"}\n')
    before = look(tmp_path)
    config.write_text('{\n  "$schema": "https://opencode.ai/config.json","model": "x/y"}\n')
    assert look(tmp_path) == before
    config.write_text('{\n  "$schema": "https://elsewhere/config.json","model": "x/y"}\n')
    assert look(tmp_path).files != before.files


def test_links_are_followed_as_opencode_does(tmp_path: Path) -> None:
    outside = write(tmp_path, "outside/plugin/a.js")
    root = tmp_path / "root"
    root.mkdir()
    (root / ".opencode").symlink_to(tmp_path / "outside")
    before = look(root)
    assert list(before.files) == [".opencode/plugin/a.js"]
    outside.write_text("other")
    assert look(root).files != before.files


UNREADABLE: list[tuple[Callable[[Path], object], str]] = [
    (lambda root: (root / "opencode.json").write_text("{broken"), "opencode.json cannot be read: line 1"),
    (lambda root: (root / "opencode.json").write_text("[" * 200), "opencode.json cannot be read"),
    (lambda root: (root / "opencode.json").write_bytes(b"\xff"), "opencode.json cannot be read"),
    (lambda root: (root / "opencode.json").symlink_to("gone"), "opencode.json cannot be read: No such file"),
    (lambda root: os.mkfifo(root / "opencode.json"), "opencode.json is not a plain file"),
    (lambda root: (root / ".opencode").symlink_to("/dev/null"), ".opencode is not a plain file"),
    (lambda root: os.truncate(write(root, ".opencode/big"), 2**30), ".opencode/big is too large"),
]


@pytest.mark.parametrize(("make", "problem"), UNREADABLE)
def test_what_cannot_be_looked_at_cannot_be_approved(
    make: Callable[[Path], object], problem: str, tmp_path: Path
) -> None:
    make(tmp_path)
    assert problem in look(tmp_path).problem


def test_a_folder_that_leads_back_to_itself_ends_in_a_problem(tmp_path: Path) -> None:
    (tmp_path / ".opencode" / "a").mkdir(parents=True)
    (tmp_path / ".opencode" / "a" / "b").symlink_to("..")
    write(tmp_path, ".opencode/x")
    assert look(tmp_path).problem


def test_too_many_files_are_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 3)
    for number in range(4):
        write(tmp_path, f".opencode/plugin/{number}.js")
    assert "more than 3 files" in look(tmp_path).problem
