"""The file with the MCP servers of an agent."""

import json
from pathlib import Path
from typing import Any

from rookery.agents.opencode.config import AgentServers, RedirectedServer
from rookery.agents.opencode.server_entries import ServerEntryFiles
from rookery.workspaces.model import Workspace
from rookery.workspaces.projects import Project


def make_workspace(path: Path) -> Workspace:
    return Workspace(Project("app-1", "app", str(path)), "fix", path, "fix", main=False, state="ready")


def read(files: ServerEntryFiles, workspace: Workspace) -> dict[str, Any]:
    return json.loads(files.path_for(workspace).read_text())


def test_the_file_has_the_entries_of_a_launch_and_no_secret(tmp_path: Path) -> None:
    files, workspace = ServerEntryFiles(tmp_path), make_workspace(tmp_path / "fix")
    files.write(workspace, AgentServers((RedirectedServer("github"),), ("evil",), frozenset({"github"})))
    content = read(files, workspace)
    assert content["mcp"]["evil"] == {"enabled": False}
    assert content["mcp"]["github"]["url"] == "http://127.0.0.1:{env:ROOKERY_MCP_PORT}/w/app-1/fix/s/github/mcp"
    assert content["mcp"]["github"]["headers"] == {"Authorization": "Bearer {env:ROOKERY_TOKEN}"}
    assert content["usable"] == {"github": 1}
    assert files.path_for(workspace).stat().st_mode & 0o777 == 0o600
    other = make_workspace(tmp_path / "other")
    assert files.path_for(other) != files.path_for(workspace)
    files.remove(workspace)
    assert not files.path_for(workspace).exists()
    files.remove(workspace)


def test_a_server_that_works_again_differs_from_one_that_never_failed(tmp_path: Path) -> None:
    files, workspace = ServerEntryFiles(tmp_path), make_workspace(tmp_path / "fix")
    served = (RedirectedServer("a"), RedirectedServer("b"))
    files.write(workspace, AgentServers(served, (), frozenset({"a", "b"})))
    before = files.path_for(workspace).stat().st_mtime_ns
    files.write(workspace, AgentServers(served, (), frozenset({"a", "b"})))
    assert files.path_for(workspace).stat().st_mtime_ns == before
    files.write(workspace, AgentServers(served, (), frozenset({"a"})))
    assert read(files, workspace)["usable"] == {"a": 1}
    files.write(workspace, AgentServers(served, (), frozenset({"a", "b"})))
    assert read(files, workspace)["usable"] == {"a": 1, "b": 2}


def test_a_new_start_removes_the_files_of_the_last_one(tmp_path: Path) -> None:
    files, workspace = ServerEntryFiles(tmp_path), make_workspace(tmp_path / "fix")
    files.clear()
    files.write(workspace, AgentServers())
    again = ServerEntryFiles(tmp_path)
    again.clear()
    assert not files.path_for(workspace).exists()
    again.write(workspace, AgentServers())
    assert read(again, workspace) == {"mcp": {}, "usable": {}, "ready": []}


def test_a_server_that_has_started_changes_the_file(tmp_path: Path) -> None:
    files, workspace = ServerEntryFiles(tmp_path), make_workspace(tmp_path / "fix")
    served, usable = (RedirectedServer("a"),), frozenset({"a"})
    files.write(workspace, AgentServers(served, (), usable))
    assert read(files, workspace)["ready"] == []
    files.write(workspace, AgentServers(served, (), usable, usable))
    assert (read(files, workspace)["usable"], read(files, workspace)["ready"]) == ({"a": 1}, ["a"])
