"""The location of each client's configuration file."""

from pathlib import Path

import pytest

from rookery.clients.registry import CLIENTS, config_path
from tests.support.requirements import requirement

USER = {
    "claude-code": "~/.claude.json",
    "claude-desktop": "~/.config/Claude/claude_desktop_config.json",
    "cursor": "~/.cursor/mcp.json",
    "vscode": "~/.config/Code/User/mcp.json",
    "codex": "~/.codex/config.toml",
    "gemini": "~/.gemini/settings.json",
    "zed": "~/.config/zed/settings.json",
    "windsurf": "~/.codeium/windsurf/mcp_config.json",
    "opencode": "~/.config/opencode/opencode.json",
}
PROJECT = {
    "claude-code": ".mcp.json",
    "claude-desktop": None,
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "zed": ".zed/settings.json",
    "windsurf": None,
    "opencode": "opencode.json",
}


@requirement("client.print.nine")
@pytest.mark.parametrize("id_", USER)
def test_each_has_its_file(id_: str, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert config_path(CLIENTS[id_], None, home, "linux") == tmp_path / USER[id_].removeprefix("~/")
    wanted = PROJECT[id_]
    assert config_path(CLIENTS[id_], tmp_path / "app", home) == (tmp_path / "app" / wanted if wanted else None)


@pytest.mark.parametrize(
    ("id_", "environment", "wanted"),
    [
        ("claude-code", {"CLAUDE_CONFIG_DIR": "/c"}, "/c/.claude.json"),
        ("codex", {"CODEX_HOME": "/c"}, "/c/config.toml"),
        ("zed", {"XDG_CONFIG_HOME": "/c"}, "/c/zed/settings.json"),
        ("zed", {"XDG_CONFIG_HOME": "relative"}, "/home/.config/zed/settings.json"),
    ],
)
def test_variables_move_the_files_as_they_do_for_the_client(id_: str, environment: dict[str, str], wanted: str) -> None:
    assert config_path(CLIENTS[id_], None, {"HOME": "/home", **environment}, "linux") == Path(wanted)


def test_on_a_mac_applications_have_a_folder_of_their_own() -> None:
    found = config_path(CLIENTS["claude-desktop"], None, {"HOME": "/u"}, "darwin")
    assert found == Path("/u/Library/Application Support/Claude/claude_desktop_config.json")
    assert config_path(CLIENTS["zed"], None, {"HOME": "/u"}, "darwin") == Path("/u/.config/zed/settings.json")


def test_of_two_files_the_one_that_is_there_is_meant(tmp_path: Path) -> None:
    (tmp_path / "opencode.jsonc").write_text("{}")
    assert config_path(CLIENTS["opencode"], tmp_path, {}) == tmp_path / "opencode.jsonc"


def test_programs_that_are_started_from_a_desktop_get_the_bridge_by_default() -> None:
    bridged = {client.id for client in CLIENTS.values() if client.default == "bridge"}
    assert bridged == {"claude-desktop", "cursor", "vscode", "windsurf", "zed"}
