"""The content of the generated config file and of the inline config."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rookery.agents.opencode.config import (
    PLUGIN_FILE,
    AgentServers,
    InlineConfig,
    RedirectedServer,
    render_config_file,
    render_inline_config,
)
from rookery.system.errors import RookeryError
from tests.support.requirements import requirement


def told(**more: Any) -> dict[str, Any]:
    return json.loads(render_inline_config(InlineConfig(project="app-1a2b3c4d", workspace="fix", **more)))


@requirement("agent.config.shape", "agent.config.file")
def test_the_generated_file_is_this_and_nothing_else() -> None:
    entry = {
        "type": "remote",
        "url": "http://127.0.0.1:{env:ROOKERY_MCP_PORT}/mcp",
        "headers": {
            "X-Workspace-Path": "{env:ROOKERY_WORKSPACE_HEADER}",
            "Authorization": "Bearer {env:ROOKERY_TOKEN}",
        },
        "enabled": True,
        "oauth": False,
        "timeout": 300000,
    }
    assert json.loads(render_config_file()) == {"$schema": "https://opencode.ai/config.json", "mcp": {"rookery": entry}}


@requirement("agent.servers.redirected", "agent.config.merged")
def test_servers_are_redirected_under_their_own_names_with_their_own_time_outs() -> None:
    mcp = told(servers=AgentServers((RedirectedServer("github"), RedirectedServer("my server/ü", 5000))))["mcp"]
    assert mcp["github"] == {
        "type": "remote",
        "url": "http://127.0.0.1:{env:ROOKERY_MCP_PORT}/w/app-1a2b3c4d/fix/s/github/mcp",
        "headers": {"Authorization": "Bearer {env:ROOKERY_TOKEN}"},
        "enabled": True,
        "oauth": False,
        "timeout": 300000,
    }
    assert mcp["my server/ü"]["url"].endswith("/w/app-1a2b3c4d/fix/s/my%20server%2F%C3%BC/mcp")
    assert mcp["my server/ü"]["timeout"] == 5000


def test_names_in_addresses_are_single_segments_and_the_main_checkout_is_at_main() -> None:
    content = render_inline_config(
        InlineConfig(project="app-1", workspace="feature/a b", servers=AgentServers((RedirectedServer("x"),)))
    )
    assert "/w/app-1/feature%2Fa%20b/s/x/mcp" in content
    assert "/w/app-1/@main/s/x/mcp" in render_inline_config(
        InlineConfig(project="app-1", workspace="@main", servers=AgentServers((RedirectedServer("x"),)))
    )


@requirement("agent.config.merged")
def test_servers_that_wait_for_approval_are_off() -> None:
    assert told(servers=AgentServers(off=("evil",)))["mcp"] == {"evil": {"enabled": False}}


@requirement("agent.config.no-port")
def test_without_a_gateway_nothing_is_redirected_and_what_waits_stays_off() -> None:
    found = told(servers=AgentServers((RedirectedServer("github"),), ("evil", "rookery")), gateway=False)
    assert found["mcp"] == {"evil": {"enabled": False}, "rookery": {"enabled": False}}


def test_a_server_called_rookery_never_takes_the_place_of_ours() -> None:
    ours = json.loads(render_config_file())["mcp"]["rookery"]
    assert told(servers=AgentServers((RedirectedServer("rookery"),)))["mcp"]["rookery"] == ours
    assert told(servers=AgentServers(off=("rookery",)))["mcp"]["rookery"] == ours


@requirement("agent.env.user")
def test_the_users_inline_config_is_kept_and_ours_is_merged_into_it() -> None:
    user: dict[str, Any] = {
        "model": "a/b",
        "plugin": ["their-plugin"],
        "mcp": {"github": {"type": "local", "command": ["x"]}, "other": {"type": "remote", "url": "http://x"}},
        "provider": {"theirs": {"name": "Theirs"}},
    }
    found = told(
        user=user, servers=AgentServers((RedirectedServer("github"),)), providers={"scripted": {"name": "Scripted"}}
    )
    assert found["model"] == "a/b"
    assert found["plugin"][0] == "their-plugin"
    assert found["plugin"][1][0] == PLUGIN_FILE.as_uri()
    assert found["mcp"]["other"] == user["mcp"]["other"]
    assert found["mcp"]["github"]["type"] == "remote"
    assert found["provider"] == {"theirs": {"name": "Theirs"}, "scripted": {"name": "Scripted"}}
    assert user["plugin"] == ["their-plugin"]


def test_the_plugin_options_hold_hidden_and_forgotten_variables_and_providers() -> None:
    given: dict[str, Any] = {
        "providers": {"scripted": {}},
        "logins": ["anthropic"],
        "forgotten": ["npm_config_fetch_retries"],
    }
    path, options = told(**given)["plugin"][0]
    assert path == PLUGIN_FILE.as_uri()
    assert PLUGIN_FILE.is_file()
    assert options == {
        "hidden": ["OPENCODE_SERVER_PASSWORD", "ROOKERY_TOKEN"],
        "forgotten": ["npm_config_fetch_retries"],
        "providers": ["scripted"],
        "logins": ["anthropic"],
    }


@requirement("agent.env.user")
def test_the_users_own_file_is_merged_with_paths_that_hold_from_everywhere() -> None:
    user = {
        "username": "zed",
        "plugin": ["./mine.js", "from-npm@1", ["../two.js", {"a": 1}]],
        "provider": {"x": {"options": {"apiKey": "{file:key.txt}", "other": "{file:~/k} {file:/k} {env:K}"}}},
        "mcp": {"rookery": {"type": "local", "command": ["evil"]}, "other": {"enabled": False}},
    }
    found = json.loads(render_config_file(user, Path("/home/me/conf")))
    assert found["username"] == "zed"
    assert found["plugin"] == [
        "file:///home/me/conf/mine.js",
        "from-npm@1",
        ["file:///home/me/conf/../two.js", {"a": 1}],
    ]
    options = found["provider"]["x"]["options"]
    assert options == {"apiKey": "{file:/home/me/conf/key.txt}", "other": "{file:~/k} {file:/k} {env:K}"}
    assert found["mcp"]["other"] == {"enabled": False}
    assert found["mcp"]["rookery"]["type"] == "remote"


def test_the_plugin_is_in_the_wheel(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=Path(__file__).parents[3], check=True, timeout=120, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("rookery/agents/opencode/plugin/rookery.js") == PLUGIN_FILE.read_bytes()


def test_a_config_that_no_variable_holds_is_refused_before_the_start() -> None:
    with pytest.raises(RookeryError, match="an environment variable holds at most 131000") as caught:
        told(servers=AgentServers(tuple(RedirectedServer(f"server-{number}") for number in range(1000))))
    assert caught.value.code == "agent-unavailable"
