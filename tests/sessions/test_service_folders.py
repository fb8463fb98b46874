"""Sessions in folders inside and outside of workspaces, through every interface."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

import rookery
from rookery.system.errors import RookeryError
from tests.support.agents.sessions import refusal, start_session_driver
from tests.support.agents.watcher import make_script
from tests.support.daemon.sdk_client import open_sdk_client
from tests.support.daemon.sessions import start_system_with_sessions
from tests.support.daemon.system import FullSystem
from tests.support.mcp.sdk_client import MODERN
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


async def refused_everywhere(system: FullSystem, client: Client, folder: Path | str) -> tuple[str, str]:
    """Return the code and the words with which all interfaces refuse to begin a session there."""
    found = await client.call_tool("create_session", {"directory": str(folder)})
    assert found.is_error and found.structured_content is not None
    error: dict[str, Any] = found.structured_content["error"]
    body = json.dumps({"directory": str(folder)}).encode()
    answer = system.daemon.http("POST", "/api/sessions", body, headers={"Content-Type": "application/json"})
    assert answer.json()["error"] == error and answer.status in (400, 404)
    done = await system.cli("session", "new", str(folder))
    assert done.returncode != 0 and done.stdout == ""
    async with rookery.connect() as r:
        with pytest.raises(RookeryError) as caught:
            await r.sessions.create(folder)
    assert (caught.value.code, caught.value.message, caught.value.remedy) == tuple(
        error[key] for key in ("code", "message", "remedy")
    )
    if error["code"] != "invalid-input":
        assert error["message"] in done.stderr and error["remedy"] in done.stderr
    return error["code"], f"{error['message']} ({error['remedy']})"


@requirement("session.create.folder", "session.create.input")
async def test_a_session_begins_in_any_folder_of_a_workspace_and_nowhere_else() -> None:
    async with (
        start_system_with_sessions("fix") as (system, (path,)),
        open_sdk_client(system.daemon, "http", MODERN) as client,
    ):
        deep = path / "src" / "deep er"
        deep.mkdir(parents=True)
        make_repository(path / "nested")
        link = Path.home() / "link"
        link.symlink_to(path / "src")
        folders = {deep: "src/deep er", link: "src", path / "nested": "nested", path / "src" / ".." / "src": "src"}
        made: list[str] = []
        for folder, inside in folders.items():
            found = await client.call_tool("create_session", {"directory": str(folder), "title": "a folder"})
            assert not found.is_error and found.structured_content is not None, found
            session = found.structured_content
            assert (session["workspace"], session["directory"]) == ("fix", str(path))
            (note,) = session["notes"]
            assert inside in note and "workspace fix" in note and str(path) in note
            made.append(session["id"])
        shown = await system.rest("POST", "/api/sessions", {"directory": str(deep)})
        assert shown["workspace"] == "fix" and "src/deep er" in shown["notes"][0]
        done = await system.cli("session", "new", "./deep er", cwd=path / "src")
        assert done.returncode == 0 and "src/deep er" in done.stderr, done
        made += [shown["id"], done.stdout.strip()]
        async with rookery.connect() as r:
            of_python = await r.sessions.create(deep)
            assert len(of_python.record.notes) == 1
            made.append(of_python.id)
        assert {one["id"] for one in await system.rest("GET", "/api/sessions")} == set(made)
        # Such a session is driven like any other, and its events come.
        for id_ in made[:2]:
            turn = await system.rest("POST", f"/api/sessions/{id_}/messages", {"content": "hello", "timeout": 120_000})
            assert (turn["status"], turn["content"]) == ("finished", "Good morning.")
        for root in (path, Path(f"{path}/")):
            assert (await system.rest("POST", "/api/sessions", {"directory": str(root)}))["notes"] == []

        stranger = make_repository(Path.home() / "a stranger", {"sub/a": "a\n"})
        git(stranger, "worktree", "add", str(Path.home() / "tree"), "-b", "tree")
        for folder, top in ((stranger, stranger), (stranger / "sub", stranger), (Path.home() / "tree",) * 2):
            code, words = await refused_everywhere(system, client, folder)
            assert code == "project-not-found" and f"rookery project add {shlex.quote(str(top))}" in words
        # The command that is named registers it.
        assert str(stranger) not in [one["path"] for one in await system.rest("GET", "/api/projects")]
        _, words = await refused_everywhere(system, client, stranger / "sub")
        (command,) = re.findall(r"rookery (project add '[^']+')", words)
        done = await system.cli(*shlex.split(command))
        assert done.returncode == 0, done.stderr
        assert str(stranger) in [one["path"] for one in await system.rest("GET", "/api/projects")]
        for folder in (Path.home(), Path.home() / "not there", Path("/")):
            code, words = await refused_everywhere(system, client, folder)
            assert code == "workspace-not-found" and str(folder) in words
        for folder in (path / "README.md", path / "src" / "gone"):
            code, words = await refused_everywhere(system, client, folder)
            assert code == "invalid-input" and str(folder) in words


async def test_a_workspace_token_learns_nothing_of_other_folders() -> None:
    async with start_session_driver(make_script(hello=[{"say": "hello yourself"}])) as stage:
        one, two = await stage.host.create("one"), await stage.host.create("two")
        (one.path / "sub").mkdir()
        (one.path / "out").symlink_to(two.path)
        stranger = make_repository(Path.home() / "stranger")
        assert (await stage.sessions.create(str(one.path / "sub"), scope=one.path)).workspace == "one"
        said: set[str] = set()
        for folder in (two.path, two.path / "gone", stranger, Path.home(), Path("/nowhere"), one.path / "out"):
            with pytest.raises(RookeryError) as caught:
                await stage.sessions.create(str(folder), scope=one.path)
            assert caught.value.code == "tool-denied"
            said.add(caught.value.message.replace(str(folder), "FOLDER"))
        assert len(said) == 1
        for wrong in ("nowhere", "/a\0b"):
            async with refusal("invalid-input", "not an absolute path"):
                await stage.sessions.create(wrong)
