"""The routes for the files of a workspace: contents, refusals that equal those of the tools, and the context."""

import base64
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from rookery.system.ids import project_id
from tests.support.gateway.gateway import OWNERS, Gateway, start_gateway, view_of
from tests.support.mcp.caller import failure, words
from tests.support.requirements import requirement
from tests.support.sandbox import SECRET
from tests.support.workspaces.service import git, make_repository

pytestmark = pytest.mark.anyio


def make_app(files: dict[str, str] | None = None) -> Path:
    """Create a repository with a folder beside it, whose name begins with its own and which nobody may read."""
    app = make_repository(Path.home() / "src" / "app", files)
    outside = app.with_name("app-evil")
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    return app


def place_of(app: Path, workspace: str = "@main") -> str:
    return f"/api/workspaces/{project_id(app)}/{quote(workspace, safe='@')}"


async def get(gateway: Gateway, route: str, /, **query: Any) -> Any:
    status, found = await gateway.rest("GET", f"{route}?{urlencode(query)}")
    assert status == 200, found
    return found


async def refused(gateway: Gateway, route: str, /, **query: Any) -> tuple[int, dict[str, str]]:
    status, found = await gateway.rest("GET", f"{route}?{urlencode(query)}")
    return status, found["error"]


@requirement("files.read.path", "files.read.bounds")
async def test_a_file_is_returned_with_its_text_and_what_was_cut() -> None:
    app = make_app()
    (app / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    (app / "latin.txt").write_bytes("grün\n".encode("latin-1"))
    async with start_gateway(None, app) as gateway:
        content = f"{place_of(app)}/files/content"
        assert await get(gateway, content, path="README") == {
            "path": "README",
            "size": 4,
            "media_type": "text/plain",
            "encoding": "utf-8",
            "text": "one\n",
            "data": "",
            "first_line": 1,
            "last_line": 1,
            "cut": "",
            "uri": "",
        }
        part = await get(gateway, content, path="long.txt", first_line=5, last_line=6)
        assert (part["text"], part["first_line"], part["last_line"]) == ("line 5\nline 6\n", 5, 6)
        cut = await get(gateway, content, path="long.txt", max_bytes=20)
        assert cut["text"] == "line 1\nline 2\n" and "continue with first_line 3" in cut["cut"]
        assert (await get(gateway, content, path="latin.txt"))["encoding"] == "iso-8859-1"
        status, error = await refused(gateway, content)
        assert (status, error["code"]) == (400, "invalid-input") and "path" in error["message"]
        for wrong in ({"first_line": 0}, {"max_bytes": 0}, {"first_line": 3, "last_line": 2}, {"first_line": "one"}):
            assert (await refused(gateway, content, path="README", **wrong))[0] == 400, wrong


@requirement("files.read.bounds")
async def test_other_content_than_text_is_returned_as_base64_with_its_address() -> None:
    app = make_app()
    contents = {"a.png": b"\x89PNG\r\n\x1a\n1234", "a.out": b"\x7fELF\0"}
    for name, data in contents.items():
        (app / name).write_bytes(data)
    async with start_gateway(None, app) as gateway:
        for name, media_type in (("a.png", "image/png"), ("a.out", "application/octet-stream")):
            file = await get(gateway, f"{place_of(app)}/files/content", path=name)
            assert (file["media_type"], file["encoding"], file["text"]) == (media_type, None, "")
            assert base64.b64decode(file["data"]) == contents[name]
            assert file["uri"] == (app / name).as_uri()


@requirement("files.sandbox.outside", "files.sandbox.literal", "files.deny.secrets", "files.sandbox.special")
async def test_p01_p02_p04_p05_p08_p10_p18_p21_p23_routes_refuse_what_the_tools_refuse() -> None:
    app = make_app({".env": "TOKEN=1\n", "id_rsa": "i\n", "server.key": "k\n"})
    (app / "link").symlink_to(app.with_name("app-evil"))
    (app / "deep").symlink_to("/proc/self/root")
    os.mkfifo(app / "pipe")
    outside = ["../app-evil", f"{app}-evil/secret", "link/secret", "/etc/passwd", "a/../../x", "deep/etc/passwd"]
    denied = [".git", ".git/config", ".GIT/config"]
    secret = [".env", "id_rsa", "server.key"]
    missing = [
        "..%2fapp-evil",
        "%2e%2e/app-evil",
        "~/src/app-evil",
        "$HOME",
        "..\uff0fapp-evil",
        "\ufffd",
        "..\\app-evil",
    ]
    invalid = ["file:///etc/passwd", "README\0/../..", "x" * 256, "pipe"]
    expected = {
        **dict.fromkeys(outside, (403, "path-outside-root")),
        **dict.fromkeys(denied + secret, (403, "path-denied")),
        **dict.fromkeys(missing, (404, "file-not-found")),
        **dict.fromkeys(invalid, (400, "invalid-input")),
    }
    async with start_gateway(None, app) as gateway:
        caller = await gateway.caller(view_of(app))
        routes = {"read_file": f"{place_of(app)}/files/content", "list_directory": f"{place_of(app)}/files"}
        for path, (status, code) in expected.items():
            for tool, route in routes.items():
                answer = await caller.call(tool, {"path": path})
                found = await refused(gateway, route, path=path)
                assert found == (status if found[1]["code"] == code else 400, _error_of(answer)), (tool, path)
                if tool == "read_file":
                    assert found[1]["code"] == code, path
                assert SECRET.decode() not in str(found)
        # An empty path is none, and half of a character is none that a file can have.
        assert (await refused(gateway, routes["read_file"], path=""))[0] == 400
        status, found = await gateway.rest("GET", f"{routes['read_file']}?path=%ff")
        assert (status, found["error"]["code"]) == (404, "file-not-found")


def _error_of(answer: dict[str, Any]) -> dict[str, str]:
    failure(answer)
    return answer["result"]["structuredContent"]["error"]


@requirement("files.list.dotfiles", "files.read.names")
async def test_p19_dotfiles_are_listed_and_secrets_marked_with_tools_and_routes() -> None:
    files = {
        ".gitignore": "*.log\n.cache\n",
        ".editorconfig": "e\n",
        ".github/ci.yml": "c\n",
        ".env": "T=1\n",
        "a:b.md": "m\n",
    }
    app = make_app({**files, "back\\slash.txt": "s\n", "con": "d\n"})
    (app / ".hidden.log").touch()
    (app / ".cache").mkdir()
    (app / ".cache" / "x").touch()
    async with start_gateway(None, app) as gateway:
        caller = await gateway.caller(view_of(app))
        answer = await caller.call("list_directory", {"path": ".", "depth": 2})
        entries = answer["result"]["structuredContent"]["entries"]
        assert entries == (await get(gateway, f"{place_of(app)}/files", path=".", depth="2"))["entries"]
        assert {entry["path"]: bool(entry["denied"]) for entry in entries if entry["type"] == "file"} == {
            **dict.fromkeys(
                [".gitignore", ".editorconfig", ".github/ci.yml", "a:b.md", "back\\slash.txt", "con"], False
            ),
            "README": False,
            ".env": True,
        }
        for entry in entries:
            if entry["type"] == "file" and not entry["denied"]:
                assert "isError" not in (await caller.call("read_file", {"path": entry["path"]}))["result"]
        answer = await caller.call("list_directory", {"path": ".", "hidden": False})
        assert [entry["path"] for entry in answer["result"]["structuredContent"]["entries"]] == [
            "README",
            "a:b.md",
            "back\\slash.txt",
            "con",
        ]


@requirement("files.list.path", "files.list.options")
async def test_p30_a_folder_is_listed_in_pages_with_the_options_of_the_tool() -> None:
    app = make_app({".gitignore": "*.log\n", "sub/a.txt": "123", "sub/.hidden": "", ".env": "T=1\n"})
    (app / "sub" / "x.log").touch()
    many = app / "many"
    many.mkdir()
    odd = [b"\xff.txt", b"\x1b[31mred", b'"quoted"\\n']
    for name in [*odd, *(b"file%04d" % number for number in range(250))]:
        (many / os.fsdecode(name)).touch()
    async with start_gateway(None, app) as gateway:
        files = f"{place_of(app)}/files"
        page = await get(gateway, files, path="sub", hidden="false")
        entry = {"path": "sub/a.txt", "type": "file", "size": 3, "denied": ""}
        assert page == {"path": "sub", "entries": [entry], "next_cursor": None}
        caller = await gateway.caller(view_of(app))
        for options in (
            {"hidden": False},
            {"depth": 3, "limit": 7},
            {"sizes": False, "depth": 2},
        ):
            answer = await caller.call("list_directory", {"path": ".", **options})
            given = {name: json.dumps(value) for name, value in options.items()}
            found = await get(gateway, files, path=".", **given)
            listed = answer["result"]["structuredContent"]
            # The cursors name a position that each of the two listings has for itself.
            assert found["entries"] == listed["entries"] and bool(found["next_cursor"]) == bool(listed["next_cursor"])
        hidden = await get(gateway, files, path=".")
        assert [one["path"] for one in hidden["entries"] if one["denied"]] == [".env", ".git"]
        names: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = await get(gateway, files, path="many", limit=100, **cursor)
            names += [one["path"].removeprefix("many/") for one in page["entries"]]
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}
        assert len(names) == len(set(names)) == 253 and "\\xff.txt" in names
        assert (await refused(gateway, files, path="many", cursor="nonsense!"))[0] == 400
        for wrong in ({"depth": 0}, {"limit": 0}, {"hidden": "perhaps"}):
            assert (await refused(gateway, files, path=".", **wrong))[0] == 400


@requirement("context.get.aggregate", "context.budget.receipts", "context.since.delta")
async def test_the_context_is_returned_with_receipts_and_in_sections() -> None:
    app = make_app({"AGENTS.md": "Use tabs.\n"})
    async with start_gateway(None, app) as gateway:
        context = f"{place_of(app)}/context"
        whole = await get(gateway, context)
        assert "Use tabs." in whole["text"] and whole["text"].startswith("# Project context")
        keys = [receipt["key"] for receipt in whole["receipts"]]
        assert "git/status" in keys
        assert (await get(gateway, context, since=whole["since"]))["since"] == whole["since"]
        (app / "AGENTS.md").write_text("Use blanks.\n")
        later = await get(gateway, context, since=whole["since"])
        assert "Use blanks." in later["text"] and "Use tabs." not in later["text"]
        key = next(key for key in keys if key.endswith("AGENTS.md"))
        section = await get(gateway, f"{context}/{quote(key, safe='')}")
        assert (section["key"], section["text"], section["untrusted"]) == (key, "Use blanks.\n", True)
        assert await refused(gateway, f"{context}/nothing", x=1) == (
            404,
            {
                "code": "resource-not-found",
                "message": "there is no section 'nothing' in the context",
                "remedy": "get_project_context lists all sections",
            },
        )
        assert (await refused(gateway, context, budget=1))[0] == 400


async def test_routes_name_a_workspace_that_is_not_there_or_has_no_folder() -> None:
    app = make_app()
    async with start_gateway(None, app) as gateway:
        path = (await gateway.workspaces.create(project_id(app), "feature/x")).path
        files = f"{place_of(app, 'feature/x')}/files"
        assert (await get(gateway, files, path="."))["entries"][-1]["path"] == "README"
        # The workspaces that are inside this one belong to others.
        inner = app / "inner"
        git(app, "worktree", "add", "-q", "-b", "inner", str(inner))
        (inner / "secret").write_bytes(SECRET)
        await get(gateway, f"{place_of(app, 'inner')}/files", path=".")
        status, error = await refused(gateway, f"{place_of(app)}/files/content", path="inner/secret")
        assert (status, error["code"]) == (403, "path-denied")
        for place in (place_of(app, "nobody"), f"/api/workspaces/nobody/{quote('@main')}"):
            for route in ("files", "files/content", "context", "tasks"):
                status, error = await refused(gateway, f"{place}/{route}", path=".")
                assert status == 404 and error["code"] in ("workspace-not-found", "project-not-found")
        path.rename(path.with_name("away"))
        status, error = await refused(gateway, files, path=".")
        assert (status, error["code"]) == (404, "workspace-not-found")
        path.with_name("away").rename(path)
        assert (await get(gateway, files, path="."))["path"] == "."


@requirement("house.auth.token")
async def test_routes_for_files_are_the_owners_and_not_for_tokens_of_workspaces() -> None:
    app = make_app()
    async with start_gateway(None, app, with_tokens=True) as gateway:
        workspace = await gateway.workspaces.at(app)
        tokens = {None: 401, await gateway.workspaces.token(workspace): 403, OWNERS: 200}
        for token, status in tokens.items():
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            for route in ("files?path=.", "files/content?path=README", "context", "tasks"):
                async with gateway.http.get(gateway.url(f"{place_of(app)}/{route}"), headers=headers) as answer:
                    assert answer.status == status, (route, status)


async def test_a_link_to_a_name_that_is_no_text_is_read_on_every_interface() -> None:
    app = make_app()
    (app / os.fsdecode(b"\xff.txt")).write_text("odd\n")
    (app / "link").symlink_to(os.fsdecode(b"\xff.txt"))
    async with start_gateway(None, app) as gateway:
        caller = await gateway.caller(view_of(app))
        assert words(await caller.call("read_file", {"path": "link"})) == "odd\n"
        file = await get(gateway, f"{place_of(app)}/files/content", path="link")
        assert (file["path"], file["text"]) == ("\\xff.txt", "odd\n")
