"""A real agent has the rights of its workspace and no others."""

import asyncio
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rookery.system.ids import project_id
from tests.support.daemon.jobs import PROGRAM, Job, command, refused, routes
from tests.support.daemon.sessions import SCRIPT
from tests.support.daemon.socketio import editor
from tests.support.daemon.system import LIMIT, FullSystem, place_of, start_system
from tests.support.mcp.caller import Caller, failure
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

DEFINED = {"mcpServers": {"waits": {"command": "true"}}}
# It is there, and never started.
SERVER = {"servers": {"odd": {"command": [sys.executable, "-c", "input()"], "enabled": False}}}


@dataclass
class Prey:
    """What exists and is not the agent's: ids of another workspace, its session, what that asks, and the like."""

    project: str
    other: Path
    session: str
    ask: str
    trash: str
    lib: str

    def filled(self, path: str) -> str:
        """The path of a route, about something that exists."""
        known = {"project": self.project, "name": "other", "action": "off", "ask": self.ask, "id": self.session}
        known |= {"session": self.session, "task": "asked", "entry": self.trash, "section": "tree"}
        if path.startswith("/api/trash"):
            known["id"] = self.trash
        elif path.startswith("/api/projects"):
            known["project"] = self.lib
        elif path.startswith("/api/mcp"):
            known["name"] = "odd"
        elif path.startswith("/api/plugins"):
            known["name"] = "boulder"
        return re.sub(r"{(\w+)(?::\w+)?}", lambda match: known[match[1]], path)

    def commands(self, state: Path) -> list[Job]:
        """The commands that would do something to it, and to what is the user's."""
        acts = [
            "down",
            "ws rm other --force",
            "ws close other",
            f"ws restore {self.trash}",
            "ws trash purge --all --yes",
            "ws token other",
            f"project remove {self.lib}",
            "config set auth loopback",
            "agent stop other",
            "agent restart other",
            f"session answer {self.ask} once",
            f"session close {self.session} --delete",
            f"session send {self.session} hello",
            f"session messages {self.session}",
            f"boulder on {self.session}",
            "mcp enable odd",
            "mcp add mine --global -- true",
            "guard revoke justfile",
            "client install cursor",
        ]
        jobs = [command(*act.split(), cwd=self.other) for act in acts]
        # Another state folder makes it no user: the settings and the clients are the same ones.
        for act in ("config set auth loopback", "up -d", "mcp add mine --global -- true", "client install cursor"):
            jobs.append(command(*act.split(), cwd=self.other))
            jobs[-1]["env"] |= {"ROOKERY_HOME": str(state.parent / "another-state")}
        return jobs


async def hunt(system: FullSystem, app: Path, lib: Path) -> Prey:
    other, gone = [await system.create(name, project=project_id(app)) for name in ("other", "gone")]
    await system.rest("DELETE", f"{place_of(gone)}?force=1&wait=1")
    session = (await system.rest("POST", "/api/sessions", {"directory": other["path"]}))["id"]
    asking = {"content": "ask", "wait": False}
    await system.rest("POST", f"/api/sessions/{session}/messages", asking)
    await system.until(other, lambda one: any(need["id"].startswith("per_") for need in one["attention"]))
    (ask,) = await system.rest("GET", "/api/sessions/asks")
    (entry,) = await system.rest("GET", "/api/trash")
    assert ask["sessionId"] == session
    return Prey(project_id(app), Path(other["path"]), session, ask["id"], entry["id"], project_id(lib))


async def picture(system: FullSystem, prey: Prey) -> dict[str, Any]:
    """All that must be as it was."""
    found: dict[str, Any] = {
        path: await system.rest("GET", path)
        for path in ("/api/projects", "/api/trash", "/api/sessions/asks", "/api/plugins/boulder/state", "/api/mcp")
    }
    found["messages"] = await system.rest("GET", f"/api/sessions/{prey.session}/messages")
    status = await system.rest("GET", "/api/status")
    found["daemon"] = {key: status["daemon"][key] for key in ("pid", "instance", "auth")}
    found["workspaces"] = {
        one["name"]: (one["path"], one["open"], one["agent"]["state"], one["agent"].get("port"))
        for one in status["workspaces"]
    }
    home = Path(os.environ["HOME"])
    found["files"] = {str(path): path.read_bytes() for path in home.glob(".config/rookery/**/*") if path.is_file()} | {
        str(path): path.exists() for path in (home / ".cursor", prey.other / "asked.txt", prey.other / ".mcp.json")
    }
    return json.loads(json.dumps(found, default=str))


def attempts(prey: Prey) -> list[tuple[str, dict[str, Any], set[str]]]:
    """Each tool that takes the id of something, with one that exists, and the codes that it may be refused with."""
    one = {"sessionId": prey.session}
    unseen, owners = {"session-not-found"}, {"forbidden", "tool-denied"}
    orders = ("on", "off", "pause", "resume", "stop", "reset", "budget")
    return [
        ("answer_ask", {"askId": prey.ask, "reply": "once"}, owners),
        ("list_asks", {}, owners),
        ("list_asks", one, owners),
        ("get_session", one, unseen),
        ("close_session", {**one, "delete": True}, unseen),
        ("send_message", {**one, "content": "hello"}, unseen),
        ("get_messages", one, unseen),
        ("wait_for_message", {**one, "pattern": ".", "timeout": 1000}, unseen),
        ("get_toasts", one, unseen),
        ("wait_for_toast", {**one, "pattern": ".", "timeout": 1000}, unseen),
        ("execute_tool", {**one, "tool": "bash", "args": {"command": "true", "description": "x"}}, unseen),
        ("get_tool_history", one, unseen),
        ("get_tui_state", one, unseen),
        ("take_screenshot", one, unseen),
        ("create_session", {"directory": str(prey.other)}, owners),
        ("workspace_create", {"name": "more", "project": prey.lib}, {"invalid-input"}),
        ("workspace_list", {"project": prey.lib}, {"invalid-input"}),
        *(
            ("trigger_plugin_action", {"pluginName": "boulder", "action": order, "args": {**one, "budget": 5}}, owners)
            for order in orders
        ),
        ("trigger_plugin_action", {"pluginName": "boulder", "action": "status", "args": one}, unseen),
        ("trigger_plugin_action", {"pluginName": "boulder", "action": "log", "args": one}, unseen),
    ]


@requirement("ws.agent.principal", "ws.agent.may-not", "house.auth.loopback-agents")
@pytest.mark.parametrize(("auth", "sandbox"), [("token", "off"), ("loopback", "off"), ("token", "workspace")])
async def test_c23_what_is_not_an_agents_is_refused_to_it_and_stays_as_it_was(auth: str, sandbox: str) -> None:
    source = Path(os.environ["HOME"]) / "src"
    app = make_repository(source / "app", {"README.md": "# The app\n", ".mcp.json": json.dumps(DEFINED)})
    lib = make_repository(source / "lib")
    rookery_config = Path(os.environ["HOME"]) / ".config" / "rookery" / "mcp.json"
    rookery_config.parent.mkdir(parents=True, exist_ok=True)
    rookery_config.write_text(json.dumps(SERVER))
    settings = {"ROOKERY_AGENTS_TOOLSETS": "workspace,project,session,hub", "ROOKERY_AUTH": auth}
    settings |= {"ROOKERY_AGENTS_SANDBOX": sandbox}
    async with start_system(SCRIPT, app, lib, settings=settings) as system, aiohttp.ClientSession() as http:
        config = Path(os.environ["HOME"]) / ".config" / "opencode" / "opencode.json"
        asks = {"permission": {"bash": {"*": "allow", "echo asked*": "ask"}}}
        config.write_text(json.dumps(json.loads(config.read_text()) | asks))
        prey = await hunt(system, app, lib)
        fix = await system.create("fix", project=prey.project)
        token = (await system.rest("GET", f"{place_of(fix)}/token"))["token"]
        own = (await system.rest("POST", "/api/sessions", {"directory": fix["path"]}))["id"]
        before = await picture(system, prey)

        # From its own shell: every route, over the socket and with its token, and commands. What comes over the socket
        # is judged alike in both modes.
        daemon, bearer = system.daemon, {"Authorization": f"Bearer {token}"}
        asked = [(method, prey.filled(path)) for method, path in routes() if path not in ("/socket.io/", "/api/health")]

        def requests(to: str | int, headers: dict[str, str]) -> list[Job]:
            bodies: dict[str, Job] = {"POST": {}, "PUT": {}}
            return [{"request": [method, path, bodies.get(method), headers], "to": to} for method, path in asked]

        over_port, over_socket = requests(daemon.port, bearer), requests(daemon.runtime["socket"], {})
        commands = prey.commands(daemon.state)
        jobs = over_port if auth == "loopback" else [*over_port, *over_socket, *commands]
        known = f"was started by Rookery for the workspace at {fix['path']}"
        for job, answer in zip(jobs, await in_shell(system, own, jobs, Path(fix["path"])), strict=True):
            if job in commands:
                assert refused(answer) if sandbox == "off" else answer["code"] != 0, (job, answer)
                continue
            if sandbox != "off" and job in over_socket:
                assert "Operation not permitted" in answer["error"], (job, answer)
                continue
            assert answer["status"] == 403, (job, answer)
            if job["request"][0] != "HEAD":
                error = json.loads(answer["body"])["error"]
                assert error["code"] == "forbidden" and (job in over_port or known in error["message"]), (job, error)
        assert await picture(system, prey) == before

        # With its token, over MCP and Socket.IO.
        caller = Caller(http, f"{daemon.runtime['url']}/mcp", headers=bearer, limit=LIMIT)
        tools = {tool["name"] for tool in await caller.listed("tools")}
        for tool, given, codes in attempts(prey):
            assert tool in tools and failure(await caller.call(tool, given)) in codes, tool
        assert {tool for tool in tools if tool.startswith("hub_")} == {"hub_list_servers", "hub_find_tool"}
        for uri in (f"session://{prey.session}", f"messages://{prey.session}", f"boulder://state/{prey.session}"):
            assert "error" in await caller.ask("resources/read", {"uri": uri}), uri
        listed = await caller.call("list_sessions")
        assert prey.session not in str(listed) and own in str(listed)
        assert prey.session not in str(await caller.call("get_plugin_state", {"pluginName": "boulder"}))
        for path in (f"/w/{prey.project}/other/mcp", f"/w/{prey.project}/other/s/odd/mcp", f"/w/{prey.lib}/@main/mcp"):
            beside = Caller(http, daemon.runtime["url"] + path, headers=bearer)
            assert (await beside.raw(json.dumps(beside.message("tools/list")).encode()))[0] == 403, path
        async with editor(daemon.runtime["url"], token) as events:
            for event, given in (("delete", {"force": True}), ("setMetadata", {"key": "a", "value": "b"})):
                assert await events.code(event, {"workspacePath": str(prey.other), **given}) == "forbidden"
            assert await events.code("create", {"name": "more", "project": prey.lib}) == "forbidden"
        assert await picture(system, prey) == before

        # All of it was there to be had: the owner can.
        answered = await system.rest("POST", f"/api/sessions/asks/{prey.ask}", {"reply": "reject"})
        assert answered["id"] == prey.ask
        assert (await system.rest("DELETE", f"/api/trash/{prey.trash}"))["purged"]


async def in_shell(system: FullSystem, session: str, jobs: list[Job], folder: Path) -> list[Any]:
    """What came of each, done by one process that the agent's bash has started; `folder` is its workspace."""
    asked, answered = (folder / name for name in ("jobs.json", "results.json"))
    asked.write_text(json.dumps(jobs))
    line = f"{sys.executable} -P {PROGRAM} {asked} {answered}"
    given = {"command": line, "description": "try it", "timeout": int(LIMIT) * 1000}
    body = {"tool": "bash", "args": given, "timeout": int(LIMIT) * 1000}
    ran = await system.rest("POST", f"/api/sessions/{session}/tools", body)
    assert answered.exists(), ran
    return json.loads(await asyncio.to_thread(answered.read_text))
