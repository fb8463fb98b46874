"""The files of a workspace through the daemon: clients at the workspace's own endpoint, in both eras."""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from rookery.daemon.settings.schema import FileSettings, Settings
from rookery.system.ids import project_id
from tests.support.gateway.gateway import Gateway, start_gateway, view_of
from tests.support.gateway.sdk_client import WAYS, open_workspace_client
from tests.support.mcp.caller import ERAS, HANDSHAKE, Caller, failure, told, words
from tests.support.requirements import requirement
from tests.support.sandbox import SECRET, open_descriptors
from tests.support.workspaces.service import git, make_repository

pytestmark = pytest.mark.anyio

TOOLS = ("read_file", "list_directory")


def repository(files: dict[str, str] | None = None) -> Path:
    """One with a folder beside it that nobody may see, under a name that begins with its own."""
    made = make_repository(Path.home() / "src" / "app", files)
    outside = made.with_name("app-evil")
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    return made


def texts(found: CallToolResult) -> list[str]:
    return [one.text for one in found.content if isinstance(one, TextContent)]


async def denied(caller: Caller, path: str) -> list[str]:
    """The codes with which both tools refuse a path, of which nothing is told."""
    answers = [await caller.call(tool, {"path": path}) for tool in TOOLS]
    assert SECRET.decode() not in str(answers)
    return [failure(one) for one in answers]


@requirement("files.read.path", "files.list.path")
@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_files_are_read_and_listed_where_the_client_is(way: str, mode: str) -> None:
    async with open_workspace_client(way, mode) as face:
        (face.path / "sub").mkdir()
        (face.path / "sub" / "a.txt").write_text("in the workspace\n")
        assert not (face.app / "sub").exists()
        assert texts(await face.client.call_tool("read_file", {"path": "sub/a.txt"})) == ["in the workspace\n"]
        listed = await face.tell("list_directory", path="sub")
        assert listed["entries"] == [{"path": "sub/a.txt", "type": "file", "size": 17, "denied": ""}]


@requirement("files.sandbox.outside", "files.sandbox.literal")
@pytest.mark.parametrize("era", ERAS)
async def test_p01_p02_p04_p05_p08_p10_p21_p23_no_path_on_the_wire_leads_out(era: str) -> None:
    app = repository()
    (app / "link").symlink_to(app.with_name("app-evil"))
    (app / "deep").symlink_to("/proc/self/root")
    async with start_gateway(None, app) as gateway:
        caller = await gateway.caller(view_of(app), era)
        outside = ["../app-evil", f"{app}-evil/secret", "link/secret", "/etc/passwd", "a/../../x", "deep/etc/passwd"]
        for path in [*outside, "//etc/passwd"]:
            assert await denied(caller, path) == ["path-outside-root"] * 2, path
            answer = await caller.call("read_file", {"path": path})
            assert words(answer).startswith(f"Path outside project root: {path}")
        literal = ["..%2fapp-evil", "%2e%2e/app-evil", "~/src/app-evil", "$HOME", "..\uff0fapp-evil"]
        for path in [*literal, "..\\app-evil", "C:\\x"]:
            # Taken literally, none of them is there.
            assert await denied(caller, path) == ["file-not-found"] * 2, path
        for path in ("file:///etc/passwd", "README\0/../..", "", "x" * 256, "a/" * 3000):
            assert await denied(caller, path) == ["invalid-input"] * 2, path
        # Half of a character is no text at all.
        assert (await caller.call("read_file", {"path": "\ud800"}))["error"]["code"] == -32700
        assert words(await caller.call("read_file", {"path": f"{app}/README"})) == "one\n"


@requirement("files.deny.secrets")
async def test_p18_p19_p20_git_and_secrets_are_denied_and_marked_and_the_user_sets_which() -> None:
    files = {
        ".env": "TOKEN=1\n",
        ".env.example": "TOKEN=\n",
        "plans.key": "k\n",
        "notes.private": "n\n",
        "id_rsa": "i\n",
    }
    app = repository(files)
    settings = Settings(files=FileSettings(secret="*.private, *.hush", allowed="plans.key"))
    async with start_gateway(None, app, settings=settings) as gateway:
        caller = await gateway.caller(view_of(app))
        for path in (".git", ".git/config", ".GIT/config", ".env", "notes.private", "id_rsa"):
            assert failure(await caller.call("read_file", {"path": path})) == "path-denied", path
        for path in (".env.example", "plans.key"):
            assert "isError" not in (await caller.call("read_file", {"path": path}))["result"]
        entries = told(await caller.call("list_directory", {"path": ".", "hidden": True}))["entries"]
        marked = {one["path"] for one in entries if one["denied"]}
        assert marked == {".git", ".env", "notes.private", "id_rsa"}


@requirement("files.deny.secrets", "ws.project.add")
async def test_p26_a_workspace_inside_another_is_denied_for_as_long_as_it_exists() -> None:
    app = repository({"inner/a.txt": "the main checkout's\n"})
    async with start_gateway(None, app) as gateway:
        caller = await gateway.caller(view_of(app))
        assert words(await caller.call("read_file", {"path": "inner/a.txt"})) == "the main checkout's\n"
        # By other hands than ours, and where the folder around is known already.
        git(app, "worktree", "add", "-q", str(app / "trees" / "one"))
        assert await denied(caller, "trees/one/README") == ["path-denied"] * 2
        entries = told(await caller.call("list_directory", {"path": "trees"}))["entries"]
        assert [(one["path"], bool(one["denied"])) for one in entries] == [("trees/one", True)]
        inner = await gateway.caller(f"/w/{project_id(app)}/one/mcp")
        assert words(await inner.call("read_file", {"path": "README"})) == "one\n"
        git(app, "worktree", "remove", str(app / "trees" / "one"))
        assert failure(await caller.call("read_file", {"path": "trees/one/README"})) == "file-not-found"


@requirement("files.deny.secrets")
async def test_a_project_inside_another_is_denied_once_it_is_one() -> None:
    app = repository()
    within = make_repository(app / "vendor" / "lib")
    async with start_gateway(None, app) as gateway:
        caller = await gateway.caller(view_of(app))
        assert words(await caller.call("read_file", {"path": "vendor/lib/README"})) == "one\n"
        await gateway.rest("POST", "/api/projects", {"path": str(within)})
        assert await denied(caller, "vendor/lib/README") == ["path-denied"] * 2
        await gateway.rest("DELETE", f"/api/projects/{project_id(within)}")
        assert words(await caller.call("read_file", {"path": "vendor/lib/README"})) == "one\n"


async def _made(gateway: Gateway, app: Path, name: str) -> Path:
    workspace = await gateway.workspaces.wait_until_prepared(await gateway.workspaces.create(project_id(app), name))
    return workspace.path


@requirement("files.sandbox.links")
async def test_p25_a_folder_that_took_a_workspaces_place_is_not_read_as_it() -> None:
    app = repository()
    async with start_gateway(None, app) as gateway:
        path = await _made(gateway, app, "fix")
        caller = await gateway.caller(headers={"X-Workspace-Path": str(path)})
        assert words(await caller.call("read_file", {"path": "README"})) == "one\n"
        path.rename(path.with_name("away"))
        path.mkdir()
        (path / "README").write_text("of nobody\n")
        assert failure(await caller.call("read_file", {"path": "README"})) == "workspace-not-found"
        (path / "README").unlink()
        path.rmdir()
        path.with_name("away").rename(path)
        assert words(await caller.call("read_file", {"path": "README"})) == "one\n"


async def test_what_is_held_of_a_workspace_goes_with_it_and_comes_again() -> None:
    app = repository()
    async with start_gateway(None, app) as gateway:
        paths = [await _made(gateway, app, name) for name in ("a", "b", "c")]
        before = open_descriptors()
        headers = [{"X-Workspace-Path": str(path)} for path in paths]
        for sent in headers:
            caller = await gateway.caller(headers=sent)
            assert words(await caller.call("read_file", {"path": "README"})) == "one\n"
        grounds = gateway.parts.files._open_files
        assert set(grounds) == set(paths) and open_descriptors() >= before + 3
        workspace = await gateway.workspaces.at(paths[0])
        await gateway.workspaces.close(workspace)
        assert set(grounds) == set(paths[1:])
        await gateway.workspaces.delete(await gateway.workspaces.at(paths[1]), wait=True)
        assert set(grounds) == {paths[2]}
        again = await gateway.caller(headers=headers[0])
        assert words(await again.call("read_file", {"path": "README"})) == "one\n"
        await gateway.parts.projects.remove(project_id(app))
        gone = await gateway.caller(headers=headers[0])
        assert failure(await gone.call("read_file", {"path": "README"})) == "project-not-found"


@pytest.mark.parametrize("era", ERAS)
async def test_without_a_workspace_the_tools_say_how_to_select_one(era: str) -> None:
    app = repository()
    given: dict[str, dict[str, Any]] = {
        **{tool: {"path": "README"} for tool in TOOLS},
        **{tool: {} for tool in ("get_project_context", "list_just_tasks")},
        "run_just_task": {"task_name": "x"},
    }
    async with start_gateway(None, app) as gateway:
        nobody = await gateway.caller("/mcp", era)
        listed = {one["name"] for one in await nobody.listed("tools")}
        assert listed >= given.keys()
        for tool, arguments in given.items():
            answer = await nobody.call(tool, arguments)
            assert failure(answer) == "invalid-input" and "X-Workspace-Path" in words(answer)
        nowhere = await gateway.caller("/mcp", era, headers={"X-Workspace-Path": "/nowhere"})
        for tool, arguments in given.items():
            assert failure(await nowhere.call(tool, arguments)) == "workspace-not-found"


@requirement("files.sandbox.special")
async def test_p12_p13_pipes_and_huge_files_hold_nobody_up() -> None:
    app = repository()
    os.mkfifo(app / "pipe")
    with (app / "huge").open("wb") as file:
        file.write(b"first\n")
        file.truncate(10 * 2**30)
    async with start_gateway(None, app) as gateway:
        caller = await gateway.caller(view_of(app), HANDSHAKE)
        assert failure(await caller.call("read_file", {"path": "pipe"})) == "invalid-input"
        found = await caller.call("read_file", {"path": "huge"})
        assert "larger than" in words(found)


@requirement("files.read.bounds")
@pytest.mark.parametrize("era", ERAS)
async def test_lines_caps_encodings_and_images_come_over_the_wire_as_such(era: str) -> None:
    app = repository()
    (app / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    (app / "latin.txt").write_bytes("grün\n".encode("latin-1"))
    (app / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n1234")
    async with start_gateway(None, app) as gateway:
        caller = await gateway.caller(view_of(app), era)

        async def read(path: str, **more: int) -> list[dict[str, Any]]:
            return (await caller.call("read_file", {"path": path, **more}))["result"]["content"]

        assert (await read("long.txt", first_line=5, last_line=6))[0]["text"] == "line 5\nline 6\n"
        text, note = await read("long.txt", max_bytes=20)
        assert text["text"] == "line 1\nline 2\n" and "continue with first_line 3" in note["text"]
        text, note = await read("latin.txt")
        assert text["text"] == "grün\n" and "iso-8859-1" in note["text"]
        (image,) = await read("a.png")
        assert (image["type"], image["mimeType"]) == ("image", "image/png")


@requirement("files.list.options")
@pytest.mark.parametrize("era", ERAS)
async def test_p14_p30_odd_names_and_many_entries_come_over_the_wire_in_pages(era: str) -> None:
    app = repository()
    odd = [b"\xff.txt", b"\x1b[31mred", b"two\nlines", "\u202etxt".encode(), b'"quoted"\\n']
    folder = app / "many"
    folder.mkdir()
    for name in [*odd, *(b"file%04d" % number for number in range(250))]:
        (folder / os.fsdecode(name)).touch()
    async with start_gateway(None, app) as gateway:
        caller = await gateway.caller(view_of(app), era)
        found: list[str] = []
        cursor = None
        while True:
            page = told(await caller.call("list_directory", {"path": "many", "limit": 100, "cursor": cursor}))
            found += [one["path"].removeprefix("many/") for one in page["entries"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert len(found) == len(set(found)) == 255
        assert {name for name in found if not name.startswith("file")} == {
            *(name.decode() for name in odd[1:]),
            "\\xff.txt",
        }
        wrong = await caller.call("list_directory", {"path": "many", "cursor": "nonsense!"})
        assert failure(wrong) == "invalid-input"


@requirement("files.sandbox.special")
async def test_b35_reads_in_a_workspace_that_is_deleted_fail_and_leave_no_open_files() -> None:
    app = repository({f"src/{number}.txt": "words\n" * 20_000 for number in range(5)})
    async with start_gateway(None, app) as gateway:
        path = await _made(gateway, app, "fix")
        callers = [await gateway.caller(headers={"X-Workspace-Path": str(path)}) for _ in range(4)]
        calls = [
            caller.begin(tool, {"path": "src" if tool == "list_directory" else f"src/{number % 5}.txt"})
            for number in range(25)
            for caller in callers
            for tool in TOOLS
        ]
        workspace = await gateway.workspaces.at(path)
        await gateway.workspaces.delete(workspace, force=True, wait=True)
        answers = await asyncio.gather(*calls)
        failed = {failure(one) for one in answers if one.get("result", {}).get("isError")}
        assert failed <= {"workspace-not-found", "file-not-found"}
        assert all("result" in one or "error" in one for one in answers)
        late = await gateway.caller(headers={"X-Workspace-Path": str(path)})
        assert failure(await late.call("read_file", {"path": "src/0.txt"})) == "workspace-not-found"
        assert path not in gateway.parts.files._open_files
        for caller in [*callers, late]:
            await caller.close()
        gateway.callers.clear()
        assert not [target for target in _opened() if target.startswith(str(path))]


def _opened() -> list[str]:
    """Where the descriptors of this process lead."""
    found: list[str] = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(entry.readlink()))
    return found


@requirement("files.deny.secrets")
async def test_the_state_folder_is_denied_where_it_lies_inside_a_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    app = repository()
    monkeypatch.setenv("ROOKERY_HOME", str(app / "var" / "state"))
    async with start_gateway(None, app) as gateway:
        state = app / "var" / "state"
        (state / "token").write_bytes(SECRET)
        caller = await gateway.caller(view_of(app))
        for path in ("var/state/token", "var/state", "VAR/State/token"):
            assert await denied(caller, path) == ["path-denied"] * 2
