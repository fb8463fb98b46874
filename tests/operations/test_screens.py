"""Pictures of a session's real terminal through every interface, and where they may be saved."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import mcp_types
import psutil
import pytest
from mcp import Client
from PIL import Image

import rookery
from tests.support.daemon.sdk_client import open_sdk_client
from tests.support.daemon.sessions import start_system_with_sessions
from tests.support.daemon.system import FullSystem, place_of
from tests.support.mcp.sdk_client import MODERN
from tests.support.requirements import requirement
from tests.support.workspaces.service import git

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
BLUE = (0x5C, 0x9C, 0xF5)


async def shot(client: Client, **given: Any) -> tuple[dict[str, Any], mcp_types.ContentBlock]:
    found = await client.call_tool("take_screenshot", given)
    assert not found.is_error, found
    text, block = found.content
    assert isinstance(text, mcp_types.TextContent)
    assert found.structured_content is not None and json.loads(text.text) == found.structured_content
    return found.structured_content, block


async def refused(client: Client, path: str, **more: Any) -> str:
    return (await refusal(client, path, **more))["code"]


async def refusal(client: Client, path: str, **more: Any) -> dict[str, str]:
    found = await client.call_tool("take_screenshot", {"savePath": path, **more})
    assert found.is_error and found.structured_content is not None, found
    return found.structured_content["error"]


def image(data: bytes) -> Image.Image:
    made = Image.open(io.BytesIO(data))
    made.load()
    assert made.format == "PNG"
    return made


def files(*folders: Path) -> set[Path]:
    return {one for folder in folders for one in folder.rglob("*") if one.suffix in (".png", ".svg", ".md")}


@requirement("term.shot.input", "term.shot.path", "term.real.tui", "session.face.all")
async def test_a_session_is_pictured_on_every_face_and_saved_only_where_that_is_allowed(tmp_path: Path) -> None:
    async with (
        start_system_with_sessions(
            "one", ROOKERY_AGENTS_TOOLSETS="workspace,session", ROOKERY_SESSIONS_SAVE_ROOTS=_save_roots()
        ) as (system, (path,)),
        open_sdk_client(system.daemon, "http", MODERN) as owner,
        rookery.connect() as r,
    ):
        session = await (await r.workspaces.get("one")).sessions.create(title="To be seen")
        await session.send("hello", timeout=120)
        await _is_answered(owner, session.id)
        await _is_saved(system, owner, path)
        await _is_refused(system, owner, path)
        await _is_saved_beside_work(system, owner, path)
        await _on_the_other_faces(system, session, tmp_path)
        # Whoever looks leaves nothing behind in the conversation.
        assert [one.content for one in await session.messages()] == ["hello", "Good morning."]
        await session.close()


async def _is_answered(owner: Client, session: str) -> None:
    told, block = await shot(owner)
    assert (told["sessionId"], told["source"], told["format"], told["savedTo"]) == (session, "terminal", "png", None)
    assert (told["columns"], told["rows"], told["width"], told["height"]) == (120, 40, 1080, 720)
    assert isinstance(block, mcp_types.ImageContent) and block.mime_type == "image/png"
    drawn = image(base64.b64decode(block.data))
    assert drawn.size == (1080, 720)
    assert BLUE in {colour for _, colour in drawn.getcolors(100_000) or ()}
    told, block = await shot(owner, sessionId=session, columns=100, rows=30, scale=2)
    assert (told["columns"], told["rows"], told["width"], told["height"]) == (100, 30, 1800, 1080)
    told, block = await shot(owner, sessionId=session, format="svg")
    assert isinstance(block, mcp_types.EmbeddedResource)
    assert isinstance(block.resource, mcp_types.TextResourceContents)
    assert (block.resource.mime_type, told["mediaType"]) == ("image/svg+xml", "image/svg+xml")
    assert ">Good morning.</text>" in block.resource.text


async def _is_saved(system: FullSystem, owner: Client, path: Path) -> None:
    told, _ = await shot(owner, savePath="shots/one.png")
    assert told["savedTo"] == str(path / "shots" / "one.png")
    assert len((path / "shots" / "one.png").read_bytes()) == told["size"]
    told, _ = await shot(owner, savePath=str(path / "shots" / "one.svg"))
    assert told["format"] == "svg"
    assert (path / "shots" / "one.svg").read_text().startswith("<svg ")
    # A picture that was saved so before is replaced, in another size.
    await shot(owner, savePath="shots/one.png", scale=2)
    assert image((path / "shots" / "one.png").read_bytes()).size[0] % 18 == 0
    told, _ = await shot(owner, savePath=str(system.daemon.state / "pictures" / "one.png"))
    assert image((system.daemon.state / "pictures" / "one.png").read_bytes())


def _save_roots() -> str:
    """Where the settings let pictures be saved: by a link, beside a project, in a missing folder, and in no folder."""
    (Path.home() / "real pictures").mkdir()
    (Path.home() / "pictures").symlink_to(Path.home() / "real pictures")
    (Path.home() / "file").touch()
    return f" ~/pictures, {Path.home() / 'src'}, ~/missing/shots, ~/file"


async def _is_saved_beside_work(system: FullSystem, owner: Client, path: Path) -> None:
    """In the folders of `sessions.save_roots`, for the owner; and in `.rookery`, where it is no work."""
    pictures = Path.home() / "pictures"
    missing = Path.home() / "missing" / "shots" / "four.png"
    for place in (
        *(pictures / "a" / "one.png", pictures.resolve() / "two.svg", Path.home() / "src" / "three.png"),
        missing,
    ):
        told, _ = await shot(owner, savePath=str(place))
        assert told["savedTo"] == str(place.resolve()) and len(place.read_bytes()) == told["size"]
    told = await refusal(owner, str(Path.home() / "file" / "x.png"))
    assert told["code"] == "file-unwritable" and "sessions.save_roots" in told["message"]
    told = await refusal(owner, str(Path.home() / "x.png"))
    assert told["code"] == "path-outside-root" and "add its folder to the setting sessions.save_roots" in told["remedy"]
    for wrong in (pictures / ".." / "x.png", Path.home() / "x.png", f"{pictures}x/x.png"):
        assert await refused(owner, str(wrong)) in ("path-outside-root", "invalid-input")
    # Neither the workspaces that lie in such a folder nor what is kept there for secrets.
    assert await refused(owner, str(Path.home() / "src" / "app" / "x.png")) == "path-denied"
    assert await refused(owner, str(pictures / ".ssh" / "x.png")) == "path-denied"
    shown = (await system.workspaces())["one"]
    token = psutil.Process(shown["agent"]["pid"]).environ()["ROOKERY_TOKEN"]
    async with open_sdk_client(system.daemon, "http", MODERN, token=token) as own:
        told = await refusal(own, str(pictures / "one.png"))
        # It would not be heeded for one workspace alone.
        assert told["code"] == "path-outside-root" and "save_roots" not in told["remedy"]

    made = await system.create("clean")
    clean = Path(made["path"])
    session = (await system.rest("POST", "/api/sessions", {"directory": str(clean)}))["id"]
    for name in (".rookery/one.png", ".rookery/shots/one.svg"):
        await shot(owner, sessionId=session, savePath=name)

    async def is_dirty() -> bool:
        return (await system.rest("GET", f"{place_of(made)}/status"))["isDirty"]

    assert not await is_dirty()
    # What belongs to the project there is work, as ever.
    for name in ("config.toml", "shots/notes.txt"):
        (clean / ".rookery" / name).write_text("")
        assert await is_dirty()
        (clean / ".rookery" / name).unlink()
        assert not await is_dirty()
    (clean / "one.png").write_bytes(b"")
    assert await is_dirty()
    (clean / "one.png").unlink()
    (clean / ".rookery" / "one.png").write_bytes(b"somebody's")
    git(clean, "add", ".rookery/one.png")
    assert await is_dirty()
    git(clean, "reset", "-q")
    done = await system.cli("ws", "rm", "clean", "--yes", cwd=Path.home() / "src" / "app")
    assert done.returncode == 0 and not clean.exists(), done.stderr


async def _is_refused(system: FullSystem, owner: Client, path: Path) -> None:
    state, main = system.daemon.state, Path.home() / "src" / "app"
    (path / "out").symlink_to(Path.home())
    before, kept = files(Path.home(), state), (path / "README.md").read_bytes()
    outside = [str(Path.home() / "one.png"), "../one.png", "out/one.png", "/etc/one.png"]
    assert {await refused(owner, one) for one in outside} == {"path-outside-root"}
    # The state folder is no way round into the workspaces that lie in it.
    inside = [f"{path}/.git/one.png", ".git/one.png", ".env", f"{state}/.ssh/one.png", str(main / "one.png")]
    assert {await refused(owner, one) for one in inside} == {"path-denied"}
    wrong = ["README.md", "", "shots/", f"{state}/token", "shots"]
    assert {await refused(owner, one) for one in wrong} == {"invalid-input"}
    assert await refused(owner, "one.png", format="svg") == await refused(owner, "one.txt", format="svg")
    assert await refused(owner, "one.png", scale=9) == "invalid-input"
    assert await refused(owner, "one.png", columns=10_000) == "invalid-input"
    assert await refused(owner, "one.png", sessionId="ses_unknown") == "session-not-found"
    shown = (await system.workspaces())["one"]
    token = psutil.Process(shown["agent"]["pid"]).environ()["ROOKERY_TOKEN"]
    async with open_sdk_client(system.daemon, "http", MODERN, token=token) as own:
        assert await refused(own, str(state / "pictures" / "two.png")) == "path-outside-root"
        told, _ = await shot(own, savePath="own.png")
        assert told["savedTo"] == str(path / "own.png")
    assert files(Path.home(), state) - before == {path / "own.png"}
    assert (path / "README.md").read_bytes() == kept


async def _on_the_other_faces(system: FullSystem, session: Any, folder: Path) -> None:
    url = f"{system.daemon.runtime['url']}/api/sessions/{session.id}/screenshot"
    headers = {"Authorization": f"Bearer {system.daemon.token}"}
    async with system._session.get(url, headers=headers, params={"format": "svg"}) as answer:
        assert (answer.status, answer.content_type) == (200, "image/svg+xml")
        assert answer.headers["X-Rookery-Source"] == "terminal" and "X-Rookery-Note" not in answer.headers
        assert b"Good morning." in await answer.read()
    async with system._session.get(url, headers=headers) as answer:
        assert answer.content_type == "image/png" and image(await answer.read())
    async with system._session.get(url, headers=headers, params={"format": "gif"}) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (400, "invalid-input")

    done = await system.cli("session", "screenshot", "-o", str(folder / "cli.png"), "--size", "90x30", "--json")
    told = json.loads(done.stdout)
    assert (told["sessionId"], told["savedTo"], told["columns"]) == (session.id, str(folder / "cli.png"), 90)
    assert "data" not in told and image((folder / "cli.png").read_bytes()).size == (810, 540)
    done = await system.cli("session", "screenshot", session.id, "--format", "svg", cwd=folder)
    assert done.stdout.strip() == f"{session.id}.svg" and (folder / f"{session.id}.svg").exists()
    done = await system.cli("session", "screenshot", session.id, "-o", str(folder / "no" / "x.png"))
    assert done.returncode == 1 and "cannot be written" in done.stderr
    assert (await system.cli("session", "screenshot", "--size", "big")).returncode == 2

    taken = await session.screenshot(folder / "py.svg", columns=120, rows=40)
    assert (taken.source, taken.format, taken.saved_to) == ("terminal", "svg", str(folder / "py.svg"))
    assert taken.data == (folder / "py.svg").read_bytes() and (taken.columns, taken.rows) == (120, 40)
    assert image((await session.screenshot()).data).size == (1080, 720)
