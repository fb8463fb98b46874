"""A server that a repository defines: off until approved, then available to the model under its own name."""

import asyncio
import json
import sys
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from tests.support.cli.user import at_a_terminal
from tests.support.daemon.system import FullSystem, Shown, place_of, start_system
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

# Says what it was given, where it runs, and who started it.
SERVER = """
import json, os, sys
tool = {"name": "say", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"error": {"code": -32601, "message": "no such method"}}
    if asked["method"] == "initialize":
        about = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "small", "version": "1"}}
        answer = {"result": about | {"capabilities": {"tools": {}}}}
    elif asked["method"] == "tools/list":
        answer = {"result": {"tools": [tool]}}
    elif asked["method"] == "tools/call":
        said = {"text": asked["params"]["arguments"]["text"], "folder": os.getcwd(), "parent": os.getppid()}
        answer = {"result": {"content": [{"type": "text", "text": json.dumps(said)}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"]} | answer), flush=True)
"""
FILES = {
    "server.py": SERVER,
    ".dispatch/mcp.json": json.dumps({"servers": {"echo": {"command": sys.executable, "args": ["server.py"]}}}),
}
EARLY = [{"say": "I have no such tool.", "expect_no_tools": ["echo_say"]}]
LATE = [
    {"call": "echo_say", "with": {"text": "a heron"}, "expect_tools": ["echo_say"]},
    {"call": "echo_say", "with": {"text": "a stork"}, "hold": "it is switched off"},
    {"say": "It said: {{result}}", "hold": "the test has looked"},
]
SCRIPT = {
    "conversation": [
        {"when": "too early", "turn": [{"step": EARLY}]},
        {"when": "heron", "turn": [{"step": LATE}]},
    ]
}


@requirement("hub.live.model", "agent.servers.redirected", "agent.config.merged")
async def test_d16_f04_the_model_gets_an_approved_server_from_rookery_until_it_is_off(
    tmp_path: Path,
) -> None:
    app = make_repository(tmp_path / "app", FILES)
    async with start_system(SCRIPT, app) as system:
        # A permission of the user's, for the name that the tool has without Rookery.
        config = Path.home() / ".config" / "opencode" / "opencode.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"permission": {"echo_s*": "ask"}}))
        early = await system.create("early", "You are too early.")
        answered = await system.asked(lambda one: one.kind == "step" and one.ended)
        assert answered.problem is None and "rookery_workspace_get_status" in answered.tools

        await asyncio.to_thread(approve, system, app)
        late = await system.create("late", "Tell of the heron.")
        await allow(system, late, "once")
        told = await system.asked(lambda one: one.conversation == 2 and one.step == 2)
        assert system.model.requests.unforeseen == []
        said = json.loads(told.results[0])
        assert (said["text"], said["folder"]) == ("a heron", late["path"])

        shown = await system.show(late)
        daemon, agent = psutil.Process(system.daemon.pid), psutil.Process(shown["agent"]["pid"])
        assert said["parent"] == daemon.pid
        assert [server_of(one) for one in daemon.children() if server_of(one)] == [late["path"]]
        assert not [one for one in agent.children(recursive=True) if server_of(one)]

        # Its tools go while the model is at it, which still knows them.
        await system.rest("POST", f"/api/mcp/echo/disable?workspace={quote(late['path'])}")
        system.model.release("it is switched off")
        await allow(system, late, "once")
        gone = await system.asked(lambda one: one.conversation == 2 and one.step == 3)
        assert "there is no tool" in gone.results[-1] and "stork" not in gone.results[-1]
        assert not (await system.show(early))["agent"]["needs_restart"]
        for one in (early, late):
            assert git(Path(one["path"]), "status", "--porcelain", "--ignored") == ""
        system.model.release("the test has looked")
        await system.until(late, is_idle)


def approve(system: FullSystem, app: Path) -> None:
    with at_a_terminal("guard", "approve", "echo", cwd=app, env=system.env) as person:
        person.reads("[y/N] ")
        person.types("y\n")
        assert person.ends() == 0, person.text


async def allow(system: FullSystem, one: Shown, reply: str) -> None:
    """Answer what the pattern makes OpenCode ask before it calls the tool."""
    shown = await system.until(one, lambda now: "permission" in [need["reason"] for need in now["attention"]])
    assert "echo_say" in shown["attention"][0]["text"]
    (session,) = (await system.rest("GET", f"{place_of(one)}/agent"))["sessions"]
    asks = f"/api/sessions/{session['id']}/asks"
    (ask,) = await system.rest("GET", asks)
    await system.rest("POST", f"{asks}/{quote(ask['id'])}", {"reply": reply})


def server_of(process: psutil.Process) -> str | None:
    """The folder that it serves in, if it is such a server."""
    return process.cwd() if process.cmdline()[-1:] == ["server.py"] else None


def is_idle(one: Shown) -> bool:
    return one["status"]["agent"]["type"] == "idle"
