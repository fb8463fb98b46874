"""A file that becomes invalid keeps its last definitions, and changes are reported by directory."""

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.upstreams.config.live import LiveConfig
from rookery.upstreams.config.sources import ServerConfig
from tests.support.requirements import requirement


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    return tmp_path / "app"


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def commands(found: ServerConfig) -> dict[str, str]:
    return {one.name: one.command[0] for one in found.servers}


@requirement("hub.config.invalid")
def test_a_broken_file_keeps_its_last_definitions_and_is_reported_until_fixed(app: Path) -> None:
    file = write(app / ".mcp.json", {"mcpServers": {"a": {"command": "x", "odd": 1}}})
    configuration = LiveConfig({})
    assert commands(configuration.get(app)) == {"a": "x"}
    for broken in ('{"mcpServers": {\n', "", '{"mcpServers": 5}'):
        file.write_text(broken)
        assert configuration.refresh() == [app]
        assert commands(configuration.get(app)) == {"a": "x"}
        (problem,) = configuration.get(app).problems
        assert (problem.file, problem.note) == (str(file), False)
    assert configuration.refresh() == []
    write(file, {"mcpServers": {"a": {"command": "y"}}})
    assert configuration.refresh() == [app]
    assert commands(configuration.get(app)) == {"a": "y"}
    assert configuration.get(app).problems == []


def test_what_was_written_since_it_was_read_is_known_for_each_directory(app: Path) -> None:
    configuration = LiveConfig({})
    assert configuration.changed_files(app) == set()
    configuration.get(app)
    configuration.get(None)
    assert configuration.changed_files(app) == configuration.changed_files(None) == set()
    file = write(app / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    assert (configuration.changed_files(app), configuration.changed_files(None)) == ({file}, set())
    assert configuration.refresh(configuration.changed_files(app)) == [app]
    assert configuration.changed_files(app) == set()
    file.unlink()
    assert configuration.changed_files(app) == {file}
    configuration.forget(app)
    assert configuration.changed_files(app) == set()


@requirement("hub.config.invalid")
def test_an_entry_that_breaks_goes_on_as_it_was_and_the_others_change(app: Path) -> None:
    file = write(app / ".mcp.json", {"mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}}})
    configuration = LiveConfig({})
    configuration.get(app)
    for _ in range(2):
        write(file, {"mcpServers": {"a": {"command": 5}, "b": {"command": "y"}, "c": {"command": 5}}})
        configuration.refresh()
        assert commands(configuration.get(app)) == {"a": "x", "b": "y"}
        told = [(one.server, one.note) for one in configuration.get(app).problems]
        assert told == [("a", False), ("c", False), ("a", True)]
    write(file, {"mcpServers": {"b": {"command": "y"}}})
    configuration.refresh()
    assert commands(configuration.get(app)) == {"b": "y"}


def test_an_entry_that_turned_off_and_breaks_goes_on_doing_so(app: Path) -> None:
    write(Path.home() / ".opencode/opencode.json", {"mcp": {"a": {"command": ["x"]}}})
    file = write(app / "opencode.json", {"mcp": {"a": {"enabled": False}}})
    configuration = LiveConfig({})
    assert [one.enabled for one in configuration.get(app).servers] == [False]
    write(file, {"mcp": {"a": {"enabled": "no"}}})
    configuration.refresh()
    assert [one.enabled for one in configuration.get(app).servers] == [False]


def test_a_file_that_is_gone_says_nothing_any_more(app: Path) -> None:
    file = write(app / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    configuration = LiveConfig({})
    configuration.get(app)
    file.unlink()
    assert configuration.refresh({file}) == [app]
    assert configuration.get(app) == ServerConfig()


def test_c24_a_file_that_becomes_a_link_keeps_what_was_known_and_is_not_followed(app: Path, tmp_path: Path) -> None:
    file = write(app / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    configuration = LiveConfig({})
    configuration.get(app)
    file.unlink()
    file.symlink_to(write(tmp_path / "evil.json", {"mcpServers": {"a": {"command": "evil"}}}))
    configuration.refresh()
    assert commands(configuration.get(app)) == {"a": "x"}
    assert "symbolic link" in configuration.get(app).problems[0].message


def test_only_the_directories_are_named_for_which_something_changed(app: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    configuration = LiveConfig({})
    for directory in (None, app, other):
        assert configuration.get(directory) == ServerConfig()
    local = write(app / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    assert configuration.refresh({local}) == [app]
    users = write(Path.home() / ".config/rookery/mcp.json", {"servers": {"b": {"command": "y"}}})
    assert configuration.refresh({users}) == [None, app, other]
    users.unlink()
    assert configuration.refresh() == [None, app, other]


def test_a_directory_is_the_same_whichever_way_leads_to_it(app: Path, tmp_path: Path) -> None:
    grown: list[int] = []
    configuration = LiveConfig({})
    configuration.on_directories_changed = lambda: grown.append(1)
    (tmp_path / "link").symlink_to(app)
    assert configuration.get(app) is configuration.get(tmp_path / "link")
    assert grown == [1]


def test_the_files_that_matter_are_those_that_are_named_and_linked_to_as_well(app: Path, tmp_path: Path) -> None:
    write(app / "key", "1")
    write(app / "opencode.json", {"mcp": {"a": {"command": ["x", "{file:key}", "{file:none}"]}}})
    real = write(tmp_path / "dotfiles/mcp.json", {"servers": {}})
    (Path.home() / ".config/rookery").mkdir(parents=True)
    (Path.home() / ".config/rookery/mcp.json").symlink_to(real)
    configuration = LiveConfig({})
    configuration.get(app)
    files = configuration.files()
    assert {app / "key", app / "opencode.json", app / ".rookery/mcp.json", real} <= files
    assert (Path.home() / ".config/rookery/mcp.json").parent.resolve() / "mcp.json" in files
