"""What was good stays when a file breaks, and what changes is known by directory."""

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.upstreams.configuration import Configuration
from rookery.upstreams.sources import Found
from tests.support.requirements import requirement


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    return tmp_path / "app"


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def commands(found: Found) -> dict[str, str]:
    return {one.name: one.command[0] for one in found.servers}


@requirement("hub.config.invalid")
def test_a_file_that_breaks_leaves_what_it_said_before_and_is_told_until_it_is_mended(app: Path) -> None:
    file = write(app / ".mcp.json", {"mcpServers": {"a": {"command": "x", "odd": 1}}})
    configuration = Configuration({})
    assert commands(configuration.found(app)) == {"a": "x"}
    for broken in ('{"mcpServers": {\n', "", '{"mcpServers": 5}'):
        file.write_text(broken)
        assert configuration.refresh() == [app]
        assert commands(configuration.found(app)) == {"a": "x"}
        (problem,) = configuration.found(app).problems
        assert (problem.file, problem.note) == (str(file), False)
    assert configuration.refresh() == []
    write(file, {"mcpServers": {"a": {"command": "y"}}})
    assert configuration.refresh() == [app]
    assert commands(configuration.found(app)) == {"a": "y"}
    assert configuration.found(app).problems == []


def test_what_was_written_since_it_was_read_is_known_for_each_directory(app: Path) -> None:
    configuration = Configuration({})
    assert configuration.touched(app) == set()
    configuration.found(app)
    configuration.found(None)
    assert configuration.touched(app) == configuration.touched(None) == set()
    file = write(app / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    assert (configuration.touched(app), configuration.touched(None)) == ({file}, set())
    assert configuration.refresh(configuration.touched(app)) == [app]
    assert configuration.touched(app) == set()
    file.unlink()
    assert configuration.touched(app) == {file}
    configuration.forget(app)
    assert configuration.touched(app) == set()


@requirement("hub.config.invalid")
def test_an_entry_that_breaks_goes_on_as_it_was_and_the_others_change(app: Path) -> None:
    file = write(app / ".mcp.json", {"mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}}})
    configuration = Configuration({})
    configuration.found(app)
    for _ in range(2):
        write(file, {"mcpServers": {"a": {"command": 5}, "b": {"command": "y"}, "c": {"command": 5}}})
        configuration.refresh()
        assert commands(configuration.found(app)) == {"a": "x", "b": "y"}
        told = [(one.server, one.note) for one in configuration.found(app).problems]
        assert told == [("a", False), ("c", False), ("a", True)]
    write(file, {"mcpServers": {"b": {"command": "y"}}})
    configuration.refresh()
    assert commands(configuration.found(app)) == {"b": "y"}


def test_an_entry_that_turned_off_and_breaks_goes_on_doing_so(app: Path) -> None:
    write(Path.home() / ".opencode/opencode.json", {"mcp": {"a": {"command": ["x"]}}})
    file = write(app / "opencode.json", {"mcp": {"a": {"enabled": False}}})
    configuration = Configuration({})
    assert [one.enabled for one in configuration.found(app).servers] == [False]
    write(file, {"mcp": {"a": {"enabled": "no"}}})
    configuration.refresh()
    assert [one.enabled for one in configuration.found(app).servers] == [False]


def test_a_file_that_is_gone_says_nothing_any_more(app: Path) -> None:
    file = write(app / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    configuration = Configuration({})
    configuration.found(app)
    file.unlink()
    assert configuration.refresh({file}) == [app]
    assert configuration.found(app) == Found()


def test_c24_a_file_that_becomes_a_link_keeps_what_was_known_and_is_not_followed(app: Path, tmp_path: Path) -> None:
    file = write(app / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    configuration = Configuration({})
    configuration.found(app)
    file.unlink()
    file.symlink_to(write(tmp_path / "evil.json", {"mcpServers": {"a": {"command": "evil"}}}))
    configuration.refresh()
    assert commands(configuration.found(app)) == {"a": "x"}
    assert "symbolic link" in configuration.found(app).problems[0].message


def test_only_the_directories_are_named_for_which_something_changed(app: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    configuration = Configuration({})
    for directory in (None, app, other):
        assert configuration.found(directory) == Found()
    local = write(app / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    assert configuration.refresh({local}) == [app]
    users = write(Path.home() / ".config/rookery/mcp.json", {"servers": {"b": {"command": "y"}}})
    assert configuration.refresh({users}) == [None, app, other]
    users.unlink()
    assert configuration.refresh() == [None, app, other]


def test_a_directory_is_the_same_whichever_way_leads_to_it(app: Path, tmp_path: Path) -> None:
    grown: list[int] = []
    configuration = Configuration({})
    configuration.grown = lambda: grown.append(1)
    (tmp_path / "link").symlink_to(app)
    assert configuration.found(app) is configuration.found(tmp_path / "link")
    assert grown == [1]


def test_the_files_that_matter_are_those_that_are_named_and_linked_to_as_well(app: Path, tmp_path: Path) -> None:
    write(app / "key", "1")
    write(app / "opencode.json", {"mcp": {"a": {"command": ["x", "{file:key}", "{file:none}"]}}})
    real = write(tmp_path / "dotfiles/mcp.json", {"servers": {}})
    (Path.home() / ".config/rookery").mkdir(parents=True)
    (Path.home() / ".config/rookery/mcp.json").symlink_to(real)
    configuration = Configuration({})
    configuration.found(app)
    files = configuration.files()
    assert {app / "key", app / "opencode.json", app / ".rookery/mcp.json", real} <= files
    assert (Path.home() / ".config/rookery/mcp.json").parent.resolve() / "mcp.json" in files
