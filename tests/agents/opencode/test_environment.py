"""The environment that an agent starts with."""

from pathlib import Path
from typing import Any

import pytest

from rookery.agents.opencode.environment import (
    GUARD_FILE,
    GUARD_VARIABLE,
    EnvironmentSpec,
    build_environment,
    encode_path_header,
    find_database,
    list_warnings,
    load_login_environment,
    load_user_environment,
    remove_agent_variables,
)
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from rookery.system.process.table import MARKER
from tests.support.requirements import requirement

USER = {"HOME": "/home/me", "PATH": "/bin", "ANTHROPIC_API_KEY": "key", "HTTPS_PROXY": "http://proxy"}


def wiring(**more: Any) -> EnvironmentSpec:
    given: dict[str, Any] = {
        "workspace": Path("/ws/fix"),
        "token": "rk_token",
        "password": "secret",
        "port": 7777,
        "config": Path("/state/opencode/rookery-mcp.json"),
        "content": "{}",
    }
    return EnvironmentSpec(**given | more)


@requirement("agent.env.config", "agent.env.port", "agent.env.path", "agent.env.secrets")
def test_the_wires_are_all_there() -> None:
    found = build_environment(USER, wiring())
    assert found["OPENCODE_CONFIG"] == "/state/opencode/rookery-mcp.json"
    assert found["OPENCODE_CONFIG_CONTENT"] == "{}"
    assert found["ROOKERY_MCP_PORT"] == found["CODEHYDRA_MCP_PORT"] == "7777"
    assert found["ROOKERY_WORKSPACE_PATH"] == found["CODEHYDRA_WORKSPACE_PATH"] == "/ws/fix"
    assert found["ROOKERY_WORKSPACE_HEADER"] == "/ws/fix"
    assert found["ROOKERY_TOKEN"] == "rk_token"
    assert found["OPENCODE_SERVER_PASSWORD"] == "secret"
    assert found["OPENCODE_SERVER_USERNAME"] == "opencode"
    assert found["OPENCODE_DISABLE_AUTOUPDATE"] == "1"


@requirement("agent.env.user")
def test_the_rest_is_the_users() -> None:
    found = build_environment(USER | {"XDG_DATA_HOME": "/d", "OPENCODE_PERMISSION": "{}"}, wiring())
    assert found.items() >= (USER | {"XDG_DATA_HOME": "/d", "OPENCODE_PERMISSION": "{}"}).items()


@requirement("agent.config.no-port")
def test_without_a_gateway_port_there_are_no_wires_to_it_and_a_warning() -> None:
    without = wiring(port=None, config=None)
    found = build_environment(USER | {"OPENCODE_CONFIG": "/my.json", "ROOKERY_MCP_PORT": "1"}, without)
    assert not {"ROOKERY_MCP_PORT", "CODEHYDRA_MCP_PORT"} & set(found)
    assert found["OPENCODE_CONFIG"] == "/my.json"
    assert any("no gateway port" in line for line in list_warnings(USER, without))
    assert list_warnings(USER, wiring()) == []


@requirement("agent.config.project")
def test_the_repositorys_own_config_is_off_until_it_is_approved() -> None:
    found = build_environment(USER, wiring())
    assert found["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"
    assert found[GUARD_VARIABLE] == str(GUARD_FILE)
    assert GUARD_FILE.is_file()
    approved = build_environment(USER, wiring(project_config=True))
    assert not {"OPENCODE_DISABLE_PROJECT_CONFIG", GUARD_VARIABLE} & set(approved)


def test_ripgrep_is_on_path_after_the_users_own() -> None:
    found = build_environment(USER, wiring(ripgrep=Path("/state/rg/bin/rg")))
    assert found["PATH"] == "/bin:/state/rg/bin"


def test_nothing_of_the_opencode_that_the_daemon_was_started_from_is_inherited() -> None:
    inside = build_environment(USER, wiring(token="another", password="another")) | {"OPENCODE": "1", MARKER: "x.1"}
    inside["OPENCODE_PID"] = "17"
    assert remove_agent_variables(inside) == USER | {"npm_config_fetch_retries": "0"}
    found = build_environment(inside, wiring())
    assert (found["ROOKERY_TOKEN"], found["OPENCODE_SERVER_PASSWORD"]) == ("rk_token", "secret")
    assert not {"OPENCODE", "OPENCODE_PID", MARKER} & set(found)


def test_npm_gives_up_soon_at_the_start_unless_the_user_has_said_otherwise() -> None:
    assert build_environment(USER, wiring())["npm_config_fetch_retries"] == "0"
    kept = build_environment(USER | {"npm_config_fetch_retries": "5"}, wiring())
    assert kept["npm_config_fetch_retries"] == "5"


def test_npm_asks_no_registry_at_the_start_where_no_package_is_needed() -> None:
    assert "npm_config_offline" not in build_environment(USER, wiring())
    assert build_environment(USER, wiring(packages=False))["npm_config_offline"] == "true"
    kept = build_environment(USER | {"npm_config_offline": "false"}, wiring(packages=False))
    assert kept["npm_config_offline"] == "false"


def test_without_a_network_the_list_of_models_is_not_fetched_unless_the_user_asks() -> None:
    name = "OPENCODE_DISABLE_MODELS_FETCH"
    assert name not in build_environment({}, wiring())
    assert build_environment({}, wiring(online=False))[name] == "1"
    assert build_environment({name: "0"}, wiring(online=False))[name] == "0"


def test_a_user_who_forbids_plugins_is_told_what_that_means() -> None:
    assert any("OPENCODE_PURE" in line for line in list_warnings({"OPENCODE_PURE": "1"}, wiring()))


@requirement("agent.env.path")
@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/home/me/a b", "/home/me/a b"),
        ("/home/me/100%", "/home/me/100%"),
        ("/home/日本", "/home/%E6%97%A5%E6%9C%AC"),
        ("/home/ü/100%", "/home/%C3%BC/100%25"),
        ('/a"b', "/a%22b"),
        ("/a\\b", "/a%5Cb"),
        ("/a\nb", "/a%0Ab"),
        ("/a\udcffb", "/a%FFb"),
    ],
)
def test_the_header_is_the_path_encoded_where_it_does_not_fit(path: str, header: str) -> None:
    assert encode_path_header(path) == header


def test_the_database_is_where_opencode_looks_for_it() -> None:
    assert find_database({"HOME": "/h"}) == Path("/h/.local/share/opencode/opencode.db")
    assert find_database({"HOME": "/h", "XDG_DATA_HOME": "/d"}) == Path("/d/opencode/opencode.db")
    assert find_database({"HOME": "/h", "OPENCODE_DB": "/x/my.db"}) == Path("/x/my.db")


@pytest.fixture
def spawner() -> Spawner:
    return Spawner(new_id())


@pytest.mark.anyio
@requirement("agent.env.user")
async def test_a_login_shell_tells_what_its_profile_sets(spawner: Spawner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")
    monkeypatch.setenv("ONLY_THE_DAEMONS", "1")
    profile = "echo noise; echo noise >&2\nexport FROM_PROFILE='ü\n\"quoted\"' PATH=/mine:$PATH\n"
    (Path.home() / ".profile").write_text(profile)
    found = await load_user_environment("login-shell", spawner)
    assert found["FROM_PROFILE"] == 'ü\n"quoted"'
    assert found["PATH"].startswith("/mine:")
    assert found["HOME"] == str(Path.home())
    assert not {"ONLY_THE_DAEMONS", MARKER, "PWD", "SHLVL"} & set(found)
    assert (await load_user_environment("daemon", spawner))["ONLY_THE_DAEMONS"] == "1"


@pytest.mark.anyio
async def test_a_login_shell_that_tells_nothing_is_an_error_with_a_remedy(spawner: Spawner) -> None:
    (Path.home() / ".profile").write_text("echo broken profile >&2; exit 3\n")
    with pytest.raises(RookeryError, match="did not print its environment: broken profile") as caught:
        await load_login_environment(spawner, Path("/bin/sh"))
    assert 'agents.env_from = "daemon"' in caught.value.remedy
    with pytest.raises(RookeryError, match="/nowhere/sh was not found"):
        await load_login_environment(spawner, Path("/nowhere/sh"))


@pytest.mark.anyio
async def test_a_login_shell_that_hangs_is_ended(spawner: Spawner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.agents.opencode.environment._LOGIN_SECONDS", 0.5)
    (Path.home() / ".profile").write_text("sleep 600\n")
    with pytest.raises(RookeryError, match="did not end within"):
        await load_login_environment(spawner, Path("/bin/sh"))
    assert not spawner.children
