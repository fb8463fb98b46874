"""Rights: the tokens of workspaces, the header that selects a workspace, and what each shows."""

import asyncio
import json
import os
import shlex
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from yarl import URL

from rookery.system.ids import project_id
from rookery.system.log import REDACTOR
from rookery.workspaces.model import Workspace
from tests.support.gateway.gateway import OWNERS, Gateway, start_gateway
from tests.support.http.listener import within_limit
from tests.support.mcp.caller import ERAS, HANDSHAKE, MODERN, Caller, failure, told, words
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = pytest.mark.anyio

HEADER = "X-Workspace-Path"


def repository(name: str = "app") -> Path:
    return make_repository(Path.home() / "src" / name)


@asynccontextmanager
async def a_guarded(*projects: Path) -> AsyncGenerator[Gateway]:
    async with start_gateway(lambda scripted: scripted.servers("one"), *projects, with_tokens=True) as gateway:
        yield gateway


async def made(gateway: Gateway, folder: Path, name: str) -> tuple[Workspace, str]:
    """A new workspace that knows its own name, and its token."""
    workspace = await gateway.workspaces.create(project_id(folder), name)
    workspace = await gateway.workspaces.wait_until_prepared(workspace)
    await gateway.workspaces.set_metadata(workspace, "who", name)
    return workspace, await gateway.workspaces.token(workspace)


async def who(caller: Caller) -> str:
    """Which workspace its tools act in."""
    found = await caller.call("workspace_get_metadata")
    return found["result"]["structuredContent"]["who"]


def bearer(token: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", **more}


def path_of(workspace: Workspace, end: str = "mcp") -> str:
    return f"/w/{workspace.project.id}/{quote(workspace.name, safe='@')}/{end}"


async def status(gateway: Gateway, method: str, path: str, headers: dict[str, str], body: bytes = b"{}") -> int:
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    data = body if method == "POST" else None
    async with gateway.http.request(method, URL(gateway.url(path), encoded=True), data=data, headers=sent) as answer:
        return answer.status


# What every endpoint answers that lets its client in.
HELLO = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
).encode()


async def raw_status(gateway: Gateway, paths: Sequence[bytes]) -> int:
    """The status of an answer to the owner, who sends these bytes as paths of workspaces."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.site.port)
    lines = [f"Host: 127.0.0.1:{gateway.site.port}", f"Authorization: Bearer {OWNERS}", f"Content-Length: {len(HELLO)}"]
    lines += ["Content-Type: application/json", "Accept: application/json, text/event-stream", "Connection: close"]
    head = [b"POST /mcp HTTP/1.1", *map(str.encode, lines), *(HEADER.encode() + b": " + path for path in paths)]
    writer.write(b"\r\n".join([*head, b"", HELLO]))
    try:
        return int((await within_limit(reader.readline())).split()[1])
    finally:
        writer.close()


@requirement("ws.identity.header", "ws.identity.normalise")
@pytest.mark.parametrize("era", ERAS)
async def test_p27_every_spelling_of_its_path_leads_to_the_same_workspace(era: str) -> None:
    folder = repository("with space é 日本")
    async with a_guarded(folder) as gateway:
        # One whose folder looks as if it were percent-encoded, and not even well.
        odd, _ = await made(gateway, folder, "fix/ffmpeg")
        other, _ = await made(gateway, folder, "fix/2Fx")
        link = Path.home() / "link to it"
        link.symlink_to(odd.path)
        place = str(odd.path)
        assert "%ffmpeg" in place and "%2Fx" in str(other.path)
        spellings = [place, f"{place}/", f"{place}//", place.replace("/state/", "/./state/../state/"), str(link)]
        spellings += [quote(place), quote(place) + "/", quote(place, safe=""), quote(str(link))]
        for spelt in spellings:
            caller = await gateway.caller("/mcp", era, headers=bearer(OWNERS, **{HEADER: spelt}))
            assert await who(caller) == "fix/ffmpeg", spelt
        for spelt in (str(other.path), quote(str(other.path))):
            caller = await gateway.caller("/mcp", era, headers=bearer(OWNERS, **{HEADER: spelt}))
            assert await who(caller) == "fix/2Fx"
        main = await gateway.caller("/mcp", era, headers=bearer(OWNERS, **{HEADER: quote(str(folder))}))
        assert failure(await main.call("workspace_delete")) == "invalid-input"
        by_path = await gateway.caller(path_of(odd), era, headers=bearer(OWNERS))
        assert await who(by_path) == "fix/ffmpeg"


@requirement("ws.identity.malformed", "ws.identity.unknown")
async def test_a07_a_malformed_path_or_one_of_nobody_selects_no_workspace(tmp_path: Path) -> None:
    folder = repository()
    async with a_guarded(folder) as gateway:
        task, _ = await made(gateway, folder, "task")
        windows = ["C:\\Users\\me\\task", "C:/task", "\\\\host\\task", str(task.path).replace("/", "\\")]
        relative = ["task", "", "./task", "%2e/task", "file://" + str(task.path)]
        long = [f"{task.path}/" + "/" * 4096, "/" + "x" * 4096]
        encoded = [f"{task.path}%ff", "%ff", f"{task.path}%00", f"%00{task.path}"]
        for wrong in [*windows, *relative, *long, *encoded]:
            assert await status(gateway, "POST", "/mcp", bearer(OWNERS, **{HEADER: wrong}), HELLO) == 400, wrong
        place = os.fsencode(task.path)
        # No library sends a NUL, or bytes that are no text.
        for sent in ([place, place], [place, b"/"], [b"", place], [place + b"/\xff"], [b"/caf\xe9"], [place + b"\0"]):
            assert await raw_status(gateway, sent) == 400, sent
        assert await raw_status(gateway, [place]) == 200
        assert await who(await gateway.caller(headers=bearer(OWNERS, **{HEADER: str(task.path)}))) == "task"
        forged = tmp_path / "forged"
        shutil.copytree(task.path, forged)
        unknown = [f"{task.path}\\..\\task", f"{task.path}/sub", f"{task.path}x", str(task.path.parent)]
        for path in [*unknown, str(forged), "/" + "x" * 300, "/proc/1/root", "/root/x"]:
            caller = await gateway.caller(headers=bearer(OWNERS, **{HEADER: path}))
            found = await caller.call("workspace_get_metadata")
            assert failure(found) == "workspace-not-found", path
        assert [one.name for one in await gateway.workspaces.list()] == ["@main", "task"]
        assert [one.path for one in await gateway.parts.projects.all()] == [str(folder)]


def unregistered_repositories(folder: Path) -> dict[Path, str]:
    """Folders of repositories that nobody registered, each with the command that registers it, if there is one.

    Their config names programs that leave a file behind if anything runs them.
    """
    stranger = make_repository(folder / "it's a stranger", {"src/deep/a.txt": "a\n"})
    git(stranger, "worktree", "add", str(folder / "tree"), "-b", "tree")
    git(stranger, "clone", "--bare", str(stranger), str(folder / "bare.git"))
    link = folder / "link"
    link.symlink_to(stranger / "src")
    program = folder / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch '{folder}/ran'\n")
    program.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "filter.x.clean", "core.sshCommand", "core.hooksPath"):
        git(stranger, "config", key, str(program))
    add = f"rookery project add {shlex.quote(str(stranger))}"
    return {
        stranger: add,
        stranger / "src" / "deep": add,
        stranger / "no" / "such" / "folder": add,
        stranger / ".git": add,
        link: add,
        folder / "tree": f"rookery project add {folder / 'tree'}",
        folder / "bare.git": "",
    }


@requirement("ws.identity.project", "ws.identity.unknown")
@pytest.mark.parametrize("era", ERAS)
async def test_a_header_with_an_unregistered_repository_names_the_missing_project(era: str, tmp_path: Path) -> None:
    folder = repository()
    strangers = unregistered_repositories(tmp_path)
    async with a_guarded(folder) as gateway:
        task, token = await made(gateway, folder, "task")
        inner = make_repository(task.path / "inner")
        strangers[inner] = f"rookery project add {inner}"
        for path, add in strangers.items():
            for spelt in (str(path), quote(str(path))):
                caller = await gateway.caller("/mcp", era, headers=bearer(OWNERS, **{HEADER: spelt}))
                found = await caller.call("workspace_get_status")
                assert failure(found) == "project-not-found" and add in words(found), spelt
        (tmp_path / "plain").mkdir()
        for path in (tmp_path / "plain", tmp_path / "gone", Path("/"), task.path / "src", task.path.parent):
            caller = await gateway.caller("/mcp", era, headers=bearer(OWNERS, **{HEADER: str(path)}))
            assert failure(await caller.call("workspace_get_status")) == "workspace-not-found", path
        # To the token of a workspace all of them look the same.
        for path in (*strangers, tmp_path / "plain", tmp_path / "gone"):
            assert await status(gateway, "POST", "/mcp", bearer(token, **{HEADER: str(path)}), HELLO) == 403
        assert not (tmp_path / "ran").exists()
        # What the error says helps.
        await gateway.parts.projects.add(tmp_path / "tree")
        caller = await gateway.caller("/mcp", era, headers=bearer(OWNERS, **{HEADER: str(tmp_path / "tree")}))
        assert told(await caller.call("workspace_get_metadata"))


@requirement("ws.identity.token", "ws.identity.header")
@pytest.mark.parametrize("era", ERAS)
async def test_a06_the_token_of_a_workspace_opens_that_one_and_no_other(era: str) -> None:
    folder, far = repository(), repository("far")
    async with a_guarded(folder, far) as gateway:
        left, token = await made(gateway, folder, "left")
        right, other = await made(gateway, folder, "feature/right")
        mine: list[tuple[str, dict[str, str]]] = [
            ("/mcp", {}),
            ("/mcp", {HEADER: str(left.path)}),
            ("/mcp", {HEADER: f"{left.path}/"}),
            (path_of(left), {}),
        ]
        for path, headers in mine:
            assert await who(await gateway.caller(path, era, headers=bearer(token, **headers))) == "left"
        assert await who(await gateway.caller("/mcp", era, headers=bearer(other))) == "feature/right"
        assert told(await (await gateway.caller(path_of(left), era, headers=bearer(token))).call("one__echo"))
        theirs: list[tuple[str, dict[str, str]]] = [
            *(("/mcp", {HEADER: path}) for path in (str(right.path), str(folder), str(far), "/nowhere", "/")),
            *((path_of(one), {}) for one in (right, await gateway.workspaces.get(project_id(far), "@main"))),
            (path_of(right, "s/one/mcp"), {}),
            (path_of(left).replace("left", "none"), {}),
            ("/w/none/left/mcp", {}),
        ]
        for path, headers in theirs:
            for end in ("mcp", "sse", "ws", "messages"):
                there = path.removesuffix("mcp") + end
                method = "GET" if end in ("sse", "ws") else "POST"
                assert await status(gateway, method, there, bearer(token, **headers), HELLO) == 403, (there, headers)
        assert {one.cwd for one in gateway.scripted.all} == {left.path}


@requirement("ws.identity.token")
async def test_a06_the_token_of_a_workspace_opens_nothing_but_mcp() -> None:
    folder = repository()
    async with a_guarded(folder) as gateway:
        _, token = await made(gateway, folder, "task")
        for method, path in (
            ("GET", "/api/status"),
            ("GET", "/api/workspaces"),
            ("GET", "/api/projects"),
            ("GET", "/api/events"),
            ("GET", "/api/logs"),
            ("GET", "/api/mcp"),
            ("GET", "/api/guard/approvals"),
            ("POST", "/api/guard/approve"),
            ("POST", "/api/daemon/stop"),
            ("POST", "/api/workspaces"),
            ("GET", "/metrics"),
            ("GET", "/"),
            ("GET", "/api/health/../status"),
            ("GET", "/%6dcp"),
        ):
            assert await status(gateway, method, path, bearer(token)) == 403, path
        assert await status(gateway, "GET", "/api/health", bearer(token)) == 200
        assert await status(gateway, "GET", "/w/../api/status", bearer(token)) == 404
        assert await status(gateway, "GET", "/api/status", bearer(OWNERS)) == 200
        assert token not in REDACTOR.clean(f"the token is {token}")


@requirement("ws.identity.token")
async def test_a18_a_session_is_worth_nothing_to_another_workspace_or_token() -> None:
    folder = repository()
    async with a_guarded(folder) as gateway:
        left, token = await made(gateway, folder, "left")
        right, other = await made(gateway, folder, "right")
        callers = [
            await gateway.old_caller("/mcp", headers=bearer(token)),
            await gateway.old_caller(path_of(left), headers=bearer(token)),
        ]
        for caller, path in zip(callers, ("/mcp", path_of(left)), strict=True):
            tries = [(path_of(right), other, 404), ("/mcp", other, 404), (path_of(left), other, 403)]
            for where, with_token, wanted in [*tries, (path, OWNERS, 404)]:
                replay = Caller(gateway.http, gateway.url(where), HANDSHAKE, headers=bearer(with_token))
                replay.session = caller.session
                message = replay.message("tools/call", {"name": "workspace_get_metadata"})
                assert (await replay.raw(json.dumps(message).encode()))[0] == wanted, where
            assert await who(caller) == "left"


async def opens(gateway: Gateway, token: str, path: str = "/mcp") -> int:
    return await status(gateway, "POST", path, bearer(token), HELLO)


@requirement("ws.identity.token")
async def test_a_token_ends_with_its_workspace_and_is_another_one_for_the_next_of_its_name() -> None:
    folder = repository()
    async with a_guarded(folder) as gateway:
        task, token = await made(gateway, folder, "task")
        assert await opens(gateway, token) < 400 and await opens(gateway, token, path_of(task)) < 400
        await gateway.workspaces.delete(task, wait=True)
        assert await opens(gateway, token) == 401
        task, fresh = await made(gateway, folder, "task")
        assert fresh != token
        assert (await opens(gateway, token), await opens(gateway, token, path_of(task))) == (401, 401)
        assert await who(await gateway.caller(headers=bearer(fresh))) == "task"


@requirement("ws.identity.token")
async def test_e16_a_token_of_a_worktree_that_was_replaced_by_hand_opens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rookery.api.endpoint.router.RECHECK_SECONDS", 0.0)
    folder = repository()
    async with a_guarded(folder) as gateway:
        task, token = await made(gateway, folder, "task")
        caller = await gateway.caller(headers=bearer(token))
        assert await who(caller) == "task" and told(await caller.call("workspace_get_metadata"))
        git(folder, "worktree", "remove", "--force", str(task.path))
        # Nobody's token as soon as the end of the worktree was seen, and before that one of a workspace that is none.
        assert await opens(gateway, token) in (401, 403)
        git(folder, "worktree", "add", str(task.path), "task")
        assert {await opens(gateway, token), await opens(gateway, token, path_of(task))} <= {401, 403}
        again = await gateway.workspaces.get(project_id(folder), "task")
        assert again.open is False and await gateway.workspaces.token(again) != token


async def test_e16_a_worktree_that_is_gone_or_replaced_is_noticed_without_being_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rookery.api.endpoint.router.RECHECK_SECONDS", 0.0)
    folder = repository()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        task, _ = await made(gateway, folder, "task")
        caller = await gateway.caller(headers={HEADER: str(task.path)})
        assert told(await caller.call("one__echo"))["server"] == "one"
        first = gateway.scripted.of("one")[0]
        git(folder, "worktree", "remove", "--force", str(task.path))
        assert failure(await caller.call("one__echo")) == "workspace-not-found"
        await first.has_ended()
        git(folder, "worktree", "add", str(task.path), "task")
        assert told(await caller.call("one__echo"))["server"] == "one"
        assert gateway.scripted.of("one")[-1].cwd == task.path


@pytest.mark.parametrize("era", ERAS)
async def test_each_place_has_the_toolsets_that_belong_there(era: str) -> None:
    folder = repository()
    async with a_guarded(folder) as gateway:
        task, token = await made(gateway, folder, "task")
        ours = {"workspace_get_status", "hub_list_servers", "one__echo"}
        wanted: list[tuple[str, str, dict[str, str], set[str]]] = [
            ("/mcp", OWNERS, {}, ours),
            ("/mcp", OWNERS, {HEADER: str(task.path)}, ours),
            ("/mcp?toolsets=hub", OWNERS, {}, {"hub_list_servers", "one__echo"}),
            (path_of(task), OWNERS, {}, {"workspace_get_status", "one__echo"}),
            (path_of(task), token, {}, {"workspace_get_status", "one__echo"}),
            (path_of(task) + "?toolsets=hub", token, {}, {"one__echo"}),
            ("/mcp", token, {}, {"workspace_get_status"}),
            ("/mcp?toolsets=workspace,hub", token, {}, {"workspace_get_status"}),
            ("/mcp?toolsets=hub", token, {}, set()),
        ]
        for path, with_token, headers, names in wanted:
            caller = await gateway.caller(path, era, headers=bearer(with_token, **headers))
            listed = {one["name"] for one in await caller.listed("tools")}
            assert listed & ours == names, (path, with_token == token)
            for name in ours - names:
                assert "result" not in await caller.call(name), (path, name)


@requirement("ws.identity.header")
async def test_a_project_that_is_removed_takes_its_views_and_servers_with_it() -> None:
    folder = repository()
    async with a_guarded(folder) as gateway:
        task, token = await made(gateway, folder, "task")
        caller = await gateway.caller(headers=bearer(OWNERS, **{HEADER: str(task.path)}))
        assert told(await caller.call("one__echo"))
        await gateway.parts.projects.remove(project_id(folder))
        await gateway.scripted.of("one")[0].has_ended()
        assert failure(await caller.call("one__echo")) == "project-not-found"
        assert await opens(gateway, token, path_of(task)) == 403
        mine = await (await gateway.caller(headers=bearer(token))).call("workspace_get_metadata")
        assert failure(mine) == "workspace-not-found" and "project add" in words(mine)


@requirement("ws.project.add")
async def test_p26_neither_the_root_nor_a_home_becomes_a_project() -> None:
    make_repository(Path.home() / "nested")
    shutil.move(Path.home() / "nested" / ".git", Path.home() / ".git")
    async with start_gateway() as gateway:
        for path in (Path.home(), Path.home() / "src"):
            path.mkdir(exist_ok=True)
            code, answered = await gateway.rest("POST", "/api/projects", {"path": str(path)})
            assert code == 400 and answered["error"]["code"] == "invalid-input"
        assert (await gateway.rest("GET", "/api/projects"))[1] == []
        caller = await gateway.caller(headers={HEADER: str(Path.home())})
        assert failure(await caller.call("workspace_get_metadata")) == "project-not-found"


async def test_a_client_over_the_older_transports_gets_the_workspace_of_its_token() -> None:
    folder = repository()
    async with a_guarded(folder) as gateway:
        _, token = await made(gateway, folder, "task")
        async with gateway.http.ws_connect(gateway.url("/ws"), headers=bearer(token)) as socket:
            maker = Caller(gateway.http, gateway.url(), MODERN)
            await socket.send_json(maker.message("tools/call", {"name": "workspace_get_metadata"}, id_=1))
            found = await socket.receive_json(timeout=10)
            assert found["result"]["structuredContent"]["who"] == "task"
        assert await status(gateway, "GET", "/sse", bearer(token, **{HEADER: str(folder)})) == 403
