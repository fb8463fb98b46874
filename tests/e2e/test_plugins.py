"""Plugins with the real OpenCode: ours receive its events, and its own are listed."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.daemon.sessions import SCRIPT
from tests.support.daemon.system import LIMIT, FullSystem, start_system
from tests.support.opencode.home import fetch_no_plugin_package
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

# Notes all that it is told, and says in a toast that the first turn is over.
WITNESS = """
import asyncio

from rookery.plugins import Plugin
from rookery.plugins.api import AFTER, BEFORE, HOOKS

plugin = Plugin("witness", version="1.0")
seen, toasted, more = [], [], asyncio.Event()


async def note(event, house):
    told = [getattr(event, name, None) for name in ("session_id", "role", "content", "error")]
    run, ask, toast = (getattr(event, name, None) for name in ("run", "ask", "toast"))
    told += [run and [run.tool, run.status], ask and ask.text, toast and toast.message]
    seen.append([event.hook, event.workspace, *told])
    more.set()


for hook in HOOKS.keys() - {BEFORE, AFTER}:
    plugin.on(hook)(note)


@plugin.on("session.idle")
async def idle(event, house):
    if not event.found and not toasted:
        toasted.append(event.session_id)
        await house.sessions.show_toast(event.session_id, "a turn is over", title="witness")


@plugin.action("until")
async def until(args, house):
    while not set(args["hooks"]) <= {one[0] for one in seen}:
        more.clear()
        await more.wait()
    return seen


@plugin.state
async def state(house):
    return {"seen": seen}
"""
FILES = {
    "README.md": "# The app\n",
    ".rookery/plugins/witness.py": WITNESS,
    ".opencode/plugin/good.js": "export const Good = async () => ({})\n",
    ".opencode/plugin/throws.js": "export const Throws = async () => { throw new Error('no luck') }\n",
    ".opencode/plugins/broken.ts": "import x from 'not-there-at-all'\nexport const Broken = async () => ({})\n",
    ".opencode/opencode.json": '{"permission": {"bash": "ask"}}',
}


async def seen(system: FullSystem, *wanted: str) -> list[list[Any]]:
    """What the witness has seen, once these hooks are among it."""
    asked = {"args": {"hooks": wanted}}
    return (await system.rest("POST", "/api/plugins/witness/actions/until", asked))["result"]


@requirement("plugin.hook.registry", "plugin.list.all", "plugin.state.get")
async def test_a_plugin_sees_a_session_from_start_to_end_and_opencode_plugins_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A machine that is busy takes its time.
    monkeypatch.setenv("ROOKERY_HOOKS_EVENT_SECONDS", str(LIMIT))
    app = make_repository(Path(os.environ["HOME"]) / "src" / "app", FILES)
    fetch_no_plugin_package(app / ".opencode")
    (app / ".opencode" / "node_modules" / "empty").touch()
    git(app, "add", "-f", ".opencode")
    git(app, "commit", "-qm", "as if OpenCode had run here")
    async with start_system(SCRIPT, app) as system:
        one = await system.create("fix")
        session = (await system.rest("POST", "/api/sessions", {"directory": one["path"]}))["id"]
        messages, asks = f"/api/sessions/{session}/messages", f"/api/sessions/{session}/asks"
        await system.rest("POST", messages, {"content": "hello"})
        await system.rest("POST", messages, {"content": "list"})
        await seen(system, "toast.shown", "tool.finished")
        await system.rest("POST", messages, {"content": "ask", "wait": False})
        await seen(system, "ask.opened")
        (ask,) = await system.rest("GET", asks)
        await system.rest("POST", f"{asks}/{quote(ask['id'])}", {"reply": "once"})
        await seen(system, "ask.answered")
        await system.rest("POST", f"/api/sessions/{session}/wait", {"for": "idle", "timeout": LIMIT * 1000})
        await system.rest("POST", messages, {"content": "fail"})
        await seen(system, "session.error")
        await system.rest("DELETE", f"/api/sessions/{session}")
        found = await seen(system, "session.closed")

        assert {place for _, place, *_ in found} == {"fix"}
        mine = [(hook, *rest) for hook, _, id_, *rest in found if id_ == session]
        hooks = [hook for hook, *_ in mine]
        assert hooks[0] == "session.created" and hooks[-1] == "session.closed"
        assert hooks.count("session.busy") == hooks.count("session.idle") == 4
        said = [(role, content) for hook, role, content, *_ in mine if hook == "message.added"]
        assert said[:2] == [("user", "hello"), ("assistant", "Good morning.")]
        assert [content for role, content in said if role == "user"] == ["hello", "list", "ask", "fail"]
        runs = [(hook, run) for hook, *_, run, _, _ in mine if hook.startswith("tool.")]
        assert runs[:2] == [("tool.started", ["glob", "running"]), ("tool.finished", ["glob", "completed"])]
        assert ("tool.finished", ["bash", "completed"]) in runs
        assert [hook for hook, *_ in mine if hook.startswith("ask.")] == ["ask.opened", "ask.answered"]
        (error,) = [error for hook, _, _, error, *_ in mine if hook == "session.error"]
        assert "no credit left" in error
        assert [toast for hook, *_, toast in found if hook == "toast.shown"] == ["a turn is over"]

        listed = await system.rest("GET", "/api/plugins")
        theirs = {one["name"]: one for one in listed if one["kind"] == "opencode"}
        assert {name: theirs[name]["status"] for name in ("good", "throws", "broken")} == {
            "good": "unknown",
            "throws": "failed",
            # OpenCode names it, and does not say that it could not be imported.
            "broken": "unknown",
        }
        assert theirs["throws"]["error"] == "no luck" and theirs["good"]["workspace"] == one["path"]
        assert await system.rest("GET", "/api/plugins/witness/state?key=seen") == found
        (witness,) = [one for one in listed if one["name"] == "witness"]
        assert (witness["status"], witness["failures"], witness["error"]) == ("loaded", 0, None)
