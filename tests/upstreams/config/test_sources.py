"""Which files are read, in which order, and that nothing in a repository refers to files outside."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rookery.upstreams.config.sources import ServerConfig, list_config_files, load_config
from tests.support.requirements import requirement

ORDER = [
    (".rookery/mcp.json", "servers"),
    (".dispatch/mcp.json", "servers"),
    ("opencode.json", "mcp"),
    ("opencode.jsonc", "mcp"),
    (".opencode/opencode.json", "mcp"),
    (".opencode/opencode.jsonc", "mcp"),
    (".mcp.json", "mcpServers"),
    ("~/.config/rookery/mcp.json", "servers"),
    ("~/.config/opencode/opencode.json", "mcp"),
    ("~/.config/opencode/opencode.jsonc", "mcp"),
    ("~/.opencode/opencode.json", "mcp"),
    ("~/.opencode/opencode.jsonc", "mcp"),
]


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    return tmp_path / "app"


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def place(app: Path, name: str) -> Path:
    return Path(name).expanduser() if name.startswith("~") else app / name


def commands(found: ServerConfig) -> dict[str, str]:
    return {one.name: " ".join(one.command) for one in found.servers}


@requirement("hub.config.sources", "hub.config.merge")
def test_every_source_counts_and_the_highest_gives_the_whole_entry(app: Path) -> None:
    for number, (name, container) in enumerate(ORDER):
        entries = {"all": {"command": [str(number)]}, f"only{number}": {"command": [str(number)]}}
        write(place(app, name), {container: entries})
    for number, (name, _) in enumerate(ORDER):
        found = load_config(app, {})
        assert found.problems == []
        assert commands(found)["all"] == str(number)
        assert [one.command[0] for one in found.shadowed] == [str(rest) for rest in range(number + 1, len(ORDER))]
        (top,) = (one for one in found.servers if one.name == "all")
        assert top.source.path == str(place(app, name))
        assert top.source.place == ("user" if name.startswith("~") else "project")
        assert f"only{number}" in commands(found)
        place(app, name).unlink()
    assert load_config(app, {}) == ServerConfig()


@requirement("hub.config.merge")
def test_entries_are_not_mixed(app: Path) -> None:
    write(app / ".mcp.json", {"mcpServers": {"a": {"command": "low", "env": {"A": "b"}}}})
    write(app / "opencode.json", {"mcp": {"a": {"command": ["high"]}}})
    (one,) = load_config(app, {}).servers
    assert (one.command, one.environment) == (("high",), {})


@requirement("hub.config.sources")
def test_without_a_directory_only_the_user_counts(app: Path) -> None:
    write(app / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    write(Path.home() / ".config/rookery/mcp.json", {"servers": {"b": {"command": "y"}}})
    assert commands(load_config(None, {})) == {"b": "y"}
    assert all(file.place == "user" for file in list_config_files(None))


@requirement("hub.config.sources")
def test_the_users_files_are_where_xdg_says(app: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    write(tmp_path / "xdg/opencode/opencode.jsonc", '{"mcp": {"a": {"command": ["x"]}}} // mine')
    write(tmp_path / "xdg/rookery/mcp.json", {"servers": {"b": {"command": "y"}}})
    assert commands(load_config(app, {})) == {"b": "y", "a": "x"}


@requirement("hub.config.enabled")
def test_a_higher_source_can_turn_off_what_a_lower_one_defines(app: Path) -> None:
    write(app / "opencode.json", {"mcp": {"a": {"enabled": False}, "none": {"enabled": False}}})
    write(Path.home() / ".opencode/opencode.json", {"mcp": {"a": {"command": ["x"]}}})
    found = load_config(app, {})
    assert [(one.name, one.enabled, one.source.place) for one in found.servers] == [("a", False, "user")]
    told = [(one.message, one.note) for one in found.problems]
    assert told == [
        ('the server "a" is turned off here', True),
        ('the server "none" is turned off here, but defined nowhere', True),
    ]


@requirement("hub.config.enabled")
def test_a_lower_source_cannot_turn_off_what_a_higher_one_defines(app: Path) -> None:
    write(app / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    write(Path.home() / ".opencode/opencode.json", {"mcp": {"a": {"enabled": False}}})
    found = load_config(app, {})
    assert [(one.name, one.enabled) for one in found.servers] == [("a", True)]


@requirement("hub.config.invalid")
def test_a_broken_file_is_told_and_the_others_count(app: Path) -> None:
    write(app / "opencode.json", '{\n"mcp": {\n"a": oops')
    write(app / ".mcp.json", {"mcpServers": {"b": {"command": "x"}}})
    write(app / ".rookery/mcp.json", b"\xff".decode("latin-1"))
    (app / ".dispatch/mcp.json").mkdir(parents=True)
    found = load_config(app, {})
    assert commands(found) == {"b": "x"}
    told = {Path(one.file).relative_to(app.resolve()).as_posix(): (one.line, one.message) for one in found.problems}
    assert told["opencode.json"] == (3, "expected a value, found 'oops'")
    assert told[".dispatch/mcp.json"] == (1, "cannot be read: not a regular file of at most 1000000 bytes")
    assert ".rookery/mcp.json" in told


@requirement("hub.config.invalid")
def test_bytes_that_are_no_text_and_files_beyond_measure_are_told(app: Path) -> None:
    (app / ".mcp.json").write_bytes(b'{"mcpServers": {"\xff": {}}}')
    (app / "opencode.json").write_bytes(b" " * 1_000_001)
    large, garbled = load_config(app, {}).problems
    assert large.message.startswith("cannot be read: not a regular file of at most")
    assert garbled.message.startswith("cannot be read: 'utf-8' codec")


def test_c24_a_file_of_a_repository_that_is_a_link_is_not_followed(app: Path, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside/mcp.json", {"servers": {"evil": {"command": "x"}}, "mcpServers": {}})
    (app / ".rookery").symlink_to(outside.parent)
    (app / ".mcp.json").symlink_to(outside)
    found = load_config(app, {})
    assert found.servers == []
    assert [one.message for one in found.problems] == [
        "cannot be read: .rookery is a symbolic link",
        "cannot be read: .mcp.json is a symbolic link",
    ]


def test_a_link_of_the_users_own_is_followed(app: Path, tmp_path: Path) -> None:
    real = write(tmp_path / "dotfiles/opencode/opencode.json", {"mcp": {"a": {"command": ["x"]}}})
    (Path.home() / ".config").mkdir()
    (Path.home() / ".config/opencode").symlink_to(real.parent)
    assert commands(load_config(app, {})) == {"a": "x"}


def test_a_pipe_in_place_of_a_file_does_not_hang(app: Path) -> None:
    os.mkfifo(app / ".mcp.json")
    assert "not a regular file" in load_config(app, {}).problems[0].message


@requirement("hub.config.substitute")
def test_a_file_can_be_named_relative_to_the_one_that_names_it(app: Path) -> None:
    write(app / "secrets/key", "from-root\n")
    write(app / ".opencode/key", "from-folder\n")
    entry = {"command": ["x", "{file:../secrets/key}", "{file:key}", "{file:./key}"]}
    write(app / ".opencode/opencode.json", {"mcp": {"a": entry}})
    (one,) = load_config(app, {}).servers
    assert one.command == ("x", "from-root", "from-folder", "from-folder")
    assert one.written["command"] == list(one.command)


@requirement("hub.config.substitute")
def test_a_user_can_name_any_file_and_its_content_is_not_shown(app: Path, tmp_path: Path) -> None:
    write(Path.home() / "key", "at-home")
    write(tmp_path / "key", "far-away")
    entry = {"command": ["x", "{file:~/key}", f"{{file:{tmp_path}/key}}"]}
    write(Path.home() / ".opencode/opencode.json", {"mcp": {"a": entry}})
    (one,) = load_config(app, {}).servers
    assert one.command == ("x", "at-home", "far-away")
    assert one.written == entry


@pytest.mark.parametrize(
    "name", ["~/key", "../key", "{outside}/key", ".git/config", "sub/../.GIT/config", "link", "far/key"]
)
def test_c24_a_repository_can_name_only_files_of_its_own(app: Path, tmp_path: Path, name: str) -> None:
    for path in (Path.home() / "key", tmp_path / "key", tmp_path / "far/key", app / ".git/config", app / ".GIT/config"):
        write(path, "hush")
    (app / "link").symlink_to(tmp_path / "key")
    (app / "far").symlink_to(tmp_path / "far")
    placeholder = "{file:" + name.replace("{outside}", str(tmp_path)) + "}"
    write(app / "opencode.json", {"mcp": {"a": {"command": ["x", placeholder]}}})
    found = load_config(app, {})
    (server,) = found.servers
    (problem,) = found.problems
    assert "cannot be read" in problem.message and server.unresolved in problem.message
    assert "hush" not in problem.message + str(msgspec.to_builtins(server))


def test_c10_what_is_approved_holds_the_content_of_files_and_the_names_of_variables(app: Path) -> None:
    write(app / "run.sh", "echo one")
    write(app / "opencode.json", {"mcp": {"a": {"command": ["sh", "-c", "{file:run.sh}", "{env:KEY}"]}}})
    (before,) = load_config(app, {"KEY": "1"}).servers
    assert before.written == {"command": ["sh", "-c", "echo one", "{env:KEY}"]}
    (other_key,) = load_config(app, {"KEY": "2"}).servers
    assert (other_key.written_digest, other_key.digest == before.digest) == (before.written_digest, False)
    write(app / "run.sh", "echo two")
    (after,) = load_config(app, {"KEY": "1"}).servers
    assert after.written_digest != before.written_digest


def test_c10_the_same_name_with_another_command_is_another_definition(app: Path) -> None:
    write(Path.home() / ".opencode/opencode.json", {"mcp": {"a": {"command": ["good"]}}})
    (users,) = load_config(app, {}).servers
    write(app / ".mcp.json", {"mcpServers": {"a": {"command": "evil"}}})
    (projects,) = load_config(app, {}).servers
    assert projects.source.place == "project"
    assert projects.digest != users.digest
    assert projects.written_digest != users.written_digest


def test_a_server_with_a_reference_without_a_value_is_marked_with_its_line(app: Path) -> None:
    write(app / "opencode.json", '{"mcp": {"a": {\n"url": "http://a",\n"headers": {"A":\n"{env:NONE}"}}}}')
    write(app / ".mcp.json", '{"mcpServers": {"b": {\n"command": "${NONE}"}, "c": {"url": "${NONE}"}}}')
    # It is not replaced by a server of the same name that a lower source defines.
    write(Path.home() / ".opencode/opencode.json", {"mcp": {"a": {"command": ["other"]}}})
    found = load_config(app, {})
    assert [(server.name, server.kind) for server in found.servers] == [
        ("a", "remote"),
        ("b", "local"),
        ("c", "remote"),
    ]
    assert all(server.unresolved.startswith("the variable NONE is not set") for server in found.servers)
    assert [(problem.server, problem.line, problem.note) for problem in found.problems] == [
        ("a", 4, False),
        ("b", 2, False),
        ("c", 2, False),
    ]
    assert [server.unresolved for server in load_config(app, {"NONE": "http://x"}).servers] == ["", "", ""]
