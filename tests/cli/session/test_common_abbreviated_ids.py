"""Ids can be abbreviated to any unique prefix in every command, route and tool that accepts one."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from rookery.system.ids import match_prefix
from tests.support.cli.tables import LONG, WITH_SESSIONS, show_tables
from tests.support.cli.user import at_a_terminal
from tests.support.cli.workspaces import app, made, told, ws
from tests.support.daemon.process import Daemon, rookery
from tests.support.daemon.sessions import start_system_with_sessions
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = requirement("house.table.width")


def shared(one: str, other: str) -> str:
    """What both begin with."""
    return os.path.commonprefix([one, other])  # noqa: RUF071 - of ids, not of paths


def test_a_prefix_means_the_only_id_that_begins_with_it() -> None:
    ids = ["ses_12", "ses_123", "ses_2"]
    assert match_prefix("ses_2", ids, "sessions") == "ses_2"
    assert match_prefix("ses_123", ids, "sessions") == "ses_123"
    # One that is whole counts, also where others begin with it.
    assert match_prefix("ses_12", ids, "sessions") == "ses_12"
    assert match_prefix("ses_3", ids, "sessions") is None
    assert match_prefix("", ids, "sessions") is None
    with pytest.raises(RookeryError) as caught:
        match_prefix("ses_1", ids, "sessions")
    assert caught.value.code == "ambiguous-id" and caught.value.remedy == "use a longer prefix: ses_12, ses_123"


@pytest.mark.anyio
@pytest.mark.timeout(600)
async def test_sessions_and_asks_are_named_by_the_beginning_of_their_ids() -> None:
    async with start_system_with_sessions(LONG) as (system, (path,)):

        async def run(*words: str, code: int = 0) -> str:
            done = await system.cli(*words, cwd=path)
            assert done.returncode == code, (words, done.stdout, done.stderr)
            return done.stderr if code else done.stdout

        first = (await run("session", "new", LONG)).strip()
        second = (await run("session", "new", LONG)).strip()
        common = shared(first, second)
        short = first[: len(common) + 1]

        shown = json.loads(await run("session", "show", short, "--json"))
        assert shown["id"] == first
        assert await run("session", "send", short, "hello", "--timeout", "120") == "Good morning.\n"
        assert "Good morning." in await run("session", "messages", short)
        assert "Good" in await run("session", "wait", short, "--message", "Good")
        assert "# The app" in await run("session", "tool", short, "read", f"filePath={path}/README.md")
        assert "read" in await run("session", "history", short)
        assert (await system.rest("GET", f"/api/sessions/{short}"))["id"] == first
        with at_a_terminal("boulder", "on", short, cwd=path) as person:
            assert await asyncio.to_thread(person.ends) == 0 and short in person.text, person.text
        assert first in await run("boulder", "status", short)
        assert "on" in await run("boulder", "log", short)

        # Several begin so: all of them are named. None does: that is not found.
        error = await run("session", "show", common, code=2)
        assert first in error and second in error
        error = json.loads(await run("session", "show", common, "--json", code=2))["error"]
        assert error["code"] == "ambiguous-id"
        await run("session", "show", f"{first}x", code=3)

        # On a terminal ids are shown as short as they may be typed; elsewhere they are whole.
        assert first in await run("session", "list") and second in await run("session", "list")
        with at_a_terminal("session", "list", cwd=path, env={"COLUMNS": "80"}) as person:
            assert await asyncio.to_thread(person.ends) == 0
        cells = [line.split()[0] for line in person.text.splitlines()[1:]]
        assert sorted(match_prefix(cell, [first, second], "sessions") or "" for cell in cells) == sorted(
            [first, second]
        )
        assert all(len(cell) < len(first) for cell in cells)
        assert all(len(line) <= 80 for line in person.text.splitlines())

        await run("session", "send", short, "ask", "--no-wait")
        await system.until_all(lambda all_: all_[LONG]["attention"])
        (ask,) = json.loads(await run("session", "asks", short, "--json"))
        toast = {"message": "many words " * 12 + "and the last of it", "variant": "success", "duration": 600_000}
        await system.rest("POST", f"/api/sessions/{first}/toasts", toast)
        shown_tables = await asyncio.to_thread(show_tables, WITH_SESSIONS, path)
        shown_ask = shown_tables["session", "asks"].splitlines()[1].split()[0]
        assert ask["id"].startswith(shown_ask) and len(shown_ask) < len(ask["id"])
        with at_a_terminal("session", "answer", shown_ask, "once", cwd=path) as person:
            assert await asyncio.to_thread(person.ends) == 0, person.text
        await run("session", "wait", short, "--message", "Done", "--timeout", "120")
        with at_a_terminal("session", "answer", shown_ask, "once", cwd=path) as person:
            assert await asyncio.to_thread(person.ends) == 3, person.text

        # Failed turns are dismissed by the beginning of an id, and a look by it is one.
        await run("session", "send", short, "fail", code=1)
        assert "1 failed turn dismissed" in await run("ws", "dismiss", LONG, "--session", short)
        await run("ws", "dismiss", LONG, "--session", common, code=2)
        await run("ws", "dismiss", LONG, "--session", f"{first}x", code=3)
        await system.rest("POST", f"/api/sessions/{first}/messages", {"content": "hello", "timeout": 120_000})
        await system.until_all(lambda all_: all_[LONG]["activity"] == "finished")
        await run("session", "messages", short)
        await system.until_all(lambda all_: all_[LONG]["activity"] == "idle")

        assert f"{first} is closed" in await run("session", "close", short)
        # What boulder did is kept under the id of a session that is closed.
        assert "on" in await run("boulder", "log", short)


def test_projects_and_trash_entries_are_named_by_the_beginning_of_their_ids(daemon: Daemon, state: Path) -> None:
    project = app(state / "src" / "app")
    one, other = (make_repository(state / place / "tool") for place in ("one", "other"))
    for repository in (one, other):
        assert rookery("project", "add", str(repository)).returncode == 0
    ids = {each["path"]: each["id"] for each in json.loads(rookery("project", "list", "--json").stdout)}
    id_ = ids[str(one)]
    common = shared(id_, ids[str(other)])
    short = id_[: len(common) + 1]

    made("fix", cwd=one)
    assert [each["name"] for each in told("list", "--project", short, cwd=project)] == ["@main", "fix"]
    assert ws("path", f"{short}/fix", cwd=project) == ws("path", f"{id_}/fix", cwd=project)
    refused = rookery("ws", "list", "--project", common)
    assert refused.returncode == 2 and id_ in refused.stderr and ids[str(other)] in refused.stderr
    assert rookery("ws", "list", "--project", f"{id_}x").returncode == 3

    made("one", cwd=project)
    made("two", cwd=project)
    ws("rm", "one", "--yes", cwd=project)
    ws("rm", "two", "--yes", cwd=project)
    first, second = (each["id"] for each in told("trash", "list", cwd=project))
    with at_a_terminal("ws", "trash", cwd=project, env={"COLUMNS": "80"}) as person:
        assert person.ends() == 0
    cells = [line.split()[-1] for line in person.text.splitlines()[1:]]
    assert [match_prefix(cell, [first, second], "entries") for cell in cells] == [first, second]
    assert all(len(line) <= 80 for line in person.text.splitlines())
    done = rookery("ws", "restore", shared(first, second), cwd=project)
    assert done.returncode == 2 and first in done.stderr and second in done.stderr
    route, headers = f"/api/trash/{shared(first, second)}/restore", {"Content-Type": "application/json"}
    assert daemon.http("POST", route, b"{}", headers=headers).status == 400
    assert rookery("ws", "restore", "19990101", cwd=project).returncode == 3
    assert ws("restore", cells[0], cwd=project).strip().endswith("/one")
    purged = json.loads(ws("trash", "purge", cells[1], "--yes", "--json", cwd=project))
    assert purged == {"purged": [second]}

    assert rookery("project", "remove", short).stdout == f"unregistered {id_}\n"
