"""Entries that change a server of a lower source: what takes effect at once, and what waits for approval."""

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.upstreams.config.definition import Definition
from rookery.upstreams.config.sources import ServerConfig, load_config
from tests.support.requirements import requirement

LOCAL = {"command": "x", "args": ["--token", "hush"], "env": {"A": "a", "B": "b"}, "tools": {"write_*": False}}
REMOTE = {"url": "https://a", "headers": {"Authorization": "Bearer hush", "X": "x"}, "timeout": 2000}


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    return tmp_path / "app"


def define(path: Path, container: str = "servers", **servers: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({container: servers}))


def user_file() -> Path:
    return Path.home() / ".config" / "opencode" / "opencode.json"


def only(config: ServerConfig) -> Definition:
    (server,) = config.servers
    return server


def load(app: Path, lower: dict[str, Any], entry: dict[str, Any]) -> tuple[Definition, Definition]:
    """Return a definition of the user's, and what an entry of the repository makes of it."""
    define(user_file(), "mcp", it=lower)
    before = only(load_config(app, {}))
    define(app / ".rookery" / "mcp.json", it=entry)
    return before, only(load_config(app, {}))


@requirement("servers.config.partial")
@pytest.mark.parametrize(
    ("lower", "entry", "field", "value"),
    [
        (LOCAL, {"enabled": False}, "enabled", False),
        (LOCAL, {"enabled": True}, "enabled", True),
        (LOCAL, {"calls": 3}, "calls", 3),
        (LOCAL, {"queue": 0}, "queue", 0),
        (LOCAL, {"exclusive": True}, "exclusive", True),
        (LOCAL, {"idle": 5}, "idle_seconds", 5),
        (LOCAL | {"idle": 0}, {"idle": 900}, "idle_seconds", 900),
        (LOCAL | {"inherit": True}, {"inherit": False}, "inherit", False),
        (LOCAL, {"scope": "session"}, "scope", "session"),
        (REMOTE, {"scope": "workspace"}, "scope", "workspace"),
        (LOCAL, {"tools": {"read_*": False}}, "tool_limits", ((("read_*", False),),)),
        (LOCAL, {"tools": {"read_*": True}}, "tool_limits", ((("read_*", True),),)),
        (LOCAL, {"tools": ["write_all"]}, "tool_limits", ((("*", False), ("write_all", True)),)),
        (LOCAL, {"env": {"A": "a"}}, "environment", {"A": "a", "B": "b"}),
    ],
)
def test_what_a_repository_narrows_takes_effect_at_once(
    lower: dict[str, Any], entry: dict[str, Any], field: str, value: Any, app: Path
) -> None:
    before, after = load(app, lower, entry)
    assert getattr(after, field) == value
    assert after.source == before.source and after.source.place == "user"
    assert (after.command, after.url, after.written_digest) == (before.command, before.url, before.written_digest)


@requirement("servers.config.partial")
@pytest.mark.parametrize(
    ("lower", "entry", "field", "value"),
    [
        (LOCAL | {"enabled": False}, {"enabled": True}, "enabled", True),
        (LOCAL, {"calls": 33}, "calls", 33),
        (LOCAL, {"queue": 129}, "queue", 129),
        (LOCAL | {"exclusive": True}, {"exclusive": False}, "exclusive", False),
        (LOCAL, {"idle": 0}, "idle_seconds", 0),
        (LOCAL, {"inherit": True}, "inherit", True),
        (LOCAL, {"inherit": True}, "is_told_root", False),
        (LOCAL, {"roots": True}, "roots", True),
        (LOCAL | {"roots": True}, {"roots": False}, "roots", False),
        (LOCAL, {"scope": "app"}, "scope", "app"),
        (LOCAL, {"framing": "content-length"}, "framing", "content-length"),
        (LOCAL, {"cwd": "sub"}, "cwd", "sub"),
        (LOCAL, {"env": {"B": "c", "NODE_OPTIONS": "--x"}}, "environment", {"A": "a", "B": "c", "NODE_OPTIONS": "--x"}),
        (LOCAL, {"tools": {"write_one": True}}, "tools", (("write_*", False), ("write_one", True))),
        (LOCAL, {"tools": {"*": True}}, "tools", (("write_*", False), ("*", True))),
        (REMOTE, {"headers": {"X": "y"}}, "headers", {"Authorization": "Bearer hush", "X": "y"}),
        (REMOTE, {"oauth": {"clientId": "c"}}, "oauth", {"clientId": "c"}),
    ],
)
def test_c10_what_a_repository_widens_waits_for_approval(
    lower: dict[str, Any], entry: dict[str, Any], field: str, value: Any, app: Path
) -> None:
    before, after = load(app, lower, entry)
    assert getattr(after, field) == value
    assert after.source.place == "project" and after.source.path == str(app / ".rookery" / "mcp.json")
    assert after.written_digest != before.written_digest
    # The whole entry is shown, without the secrets of the user's file.
    assert "hush" not in str(after.written)
    assert (
        after.written.items() >= {key: value for key, value in entry.items() if key not in ("env", "headers")}.items()
    )
    # An approval is not valid for another definition of the user's.
    define(user_file(), "mcp", it={**lower, **({"command": "y"} if "command" in lower else {"url": "https://b"})})
    assert only(load_config(app, {})).written_digest != after.written_digest


@requirement("servers.config.partial")
def test_a_time_limit_of_a_repository_may_only_be_shorter(app: Path) -> None:
    before, after = load(app, REMOTE, {"timeouts": {"catalog": 1, "execution": 10}})
    assert (after.timeouts.startup, after.timeouts.catalog, after.timeouts.execution) == (30, 1, 10)
    assert after.source == before.source
    _, after = load(app, REMOTE, {"timeouts": {"catalog": 3, "execution": 10}})
    assert after.timeouts.catalog == 3 and after.source.place == "project"


@requirement("servers.config.partial")
def test_the_users_own_entries_change_a_server_of_a_lower_file(app: Path) -> None:
    define(Path.home() / ".opencode" / "opencode.json", "mcp", it=LOCAL | {"enabled": False})
    define(user_file(), "mcp", it={"enabled": True, "environment": {"C": "c"}})
    define(Path.home() / ".config" / "rookery" / "mcp.json", it={"calls": 99, "tools": {"write_one": True}})
    server = only(load_config(app, {}))
    assert (server.enabled, server.calls, server.source.place) == (True, 99, "user")
    assert server.environment == {"A": "a", "B": "b", "C": "c"}
    assert server.tools == (("write_*", False), ("write_one", True))
    assert server.command == ("x", "--token", "hush")


@requirement("servers.config.partial")
def test_a_repository_may_change_what_it_defines_itself(app: Path) -> None:
    define(app / ".mcp.json", "mcpServers", it=LOCAL)
    before = only(load_config(app, {}))
    define(app / ".rookery" / "mcp.json", it={"calls": 1})
    narrowed = only(load_config(app, {}))
    assert (narrowed.calls, narrowed.written_digest) == (1, before.written_digest)
    define(app / ".rookery" / "mcp.json", it={"env": {"C": "c"}})
    widened = only(load_config(app, {}))
    assert widened.environment == {"A": "a", "B": "b", "C": "c"} == widened.written["environment"]
    assert widened.source.place == "project" and widened.written_digest != before.written_digest


@requirement("servers.config.partial")
def test_an_entry_with_a_program_still_replaces_the_whole_server(app: Path) -> None:
    _, after = load(app, LOCAL, {"command": "y", "calls": 3})
    assert (after.command, after.environment, after.source.place) == (("y",), {}, "project")


@requirement("servers.config.partial")
def test_a_lower_source_changes_nothing_and_an_option_of_no_server_is_reported(app: Path) -> None:
    define(app / ".rookery" / "mcp.json", it={"command": "x"})
    define(user_file(), "mcp", it={"calls": 1}, none={"calls": 1})
    config = load_config(app, {})
    assert only(config).calls == 32
    (problem,) = config.problems
    assert (problem.server, problem.note) == ("none", False) and "no other file defines it" in problem.message


@requirement("servers.config.partial")
def test_options_of_the_other_kind_are_not_used(app: Path) -> None:
    before, after = load(app, LOCAL, {"headers": {"X": "y"}, "oauth": False})
    assert (after.digest, after.source) == (before.digest, before.source)


def test_a_reference_without_a_value_in_an_option_fails_the_server(app: Path) -> None:
    _, after = load(app, LOCAL, {"env": {"C": "{env:NONE}"}})
    assert after.unresolved.startswith("the variable NONE is not set")
