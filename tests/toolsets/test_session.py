"""The session tools and resources with a real daemon and the real OpenCode: every transport, era and scope."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types
import psutil
import pytest
from mcp import Client, MCPError

import rookery
from rookery.cli.session import group as session_commands
from rookery.system.ids import project_id
from tests.support.daemon.process import alive
from tests.support.daemon.sdk_client import open_sdk_client
from tests.support.daemon.sessions import README, start_system_with_sessions, terminals
from tests.support.daemon.system import LIMIT, FullSystem
from tests.support.mcp.sdk_client import MODERN, WAYS, ClientRecorder
from tests.support.opencode.api import OpenCodeApi
from tests.support.requirements import requirement

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

ASK_TOOLS = {"list_asks", "answer_ask"}
COMMANDS = {
    *("new", "list", "show", "send", "messages", "wait", "toasts", "screen", "screenshot"),
    *("tool", "history", "close"),
}

# The session tools, resources and prompts as they were specified. Rookery may accept more, and must not require more.
TEXT: dict[str, Any] = {"type": "string"}
TRUE: dict[str, Any] = {"type": "boolean", "default": True}


def milliseconds(default: int) -> dict[str, Any]:
    return {"type": "number", "default": default}


# The description of each tool, the properties that it takes, and those of them that are required.
SPECIFIED_TOOLS: dict[str, tuple[str, dict[str, dict[str, Any]], list[str]]] = {
    "create_session": (
        "Create a new OpenCode session",
        {"directory": TEXT, "agent": TEXT, "model": TEXT},
        ["directory"],
    ),
    "list_sessions": ("List all active sessions", {}, []),
    "get_session": ("Get session details", {"sessionId": TEXT}, ["sessionId"]),
    "close_session": ("Close a session", {"sessionId": TEXT}, ["sessionId"]),
    "send_message": (
        "Send a message to OpenCode session",
        {"sessionId": TEXT, "content": TEXT, "waitForResponse": TRUE, "timeout": milliseconds(30_000)},
        ["sessionId", "content"],
    ),
    "get_messages": (
        "Get all messages in session",
        {"sessionId": TEXT, "limit": {"type": "number", "default": 50}, "since": {"type": "number"}},
        ["sessionId"],
    ),
    "wait_for_message": (
        "Wait for specific message pattern",
        {"sessionId": TEXT, "pattern": TEXT, "timeout": milliseconds(30_000)},
        ["sessionId", "pattern"],
    ),
    "get_toasts": ("Get current toast notifications", {"sessionId": TEXT}, []),
    "wait_for_toast": (
        "Wait for specific toast message",
        {"sessionId": TEXT, "pattern": TEXT, "timeout": milliseconds(10_000)},
        ["sessionId", "pattern"],
    ),
    "get_tui_state": ("Get TUI (Terminal UI) current state", {"sessionId": TEXT}, []),
    "take_screenshot": ("Take screenshot of OpenCode window", {"sessionId": TEXT, "savePath": TEXT}, []),
    "execute_tool": (
        "Execute an OpenCode tool programmatically",
        {"sessionId": TEXT, "tool": TEXT, "args": {"type": "object"}, "waitForCompletion": TRUE},
        ["sessionId", "tool", "args"],
    ),
    "get_tool_history": (
        "Get history of tool executions",
        {"sessionId": TEXT, "limit": {"type": "number", "default": 20}},
        [],
    ),
    "list_plugins": ("List loaded plugins", {}, []),
    "get_plugin_state": (
        "Get plugin state (e.g., boulder iteration)",
        {"pluginName": TEXT, "stateKey": TEXT},
        [],
    ),
    "trigger_plugin_action": (
        "Trigger plugin-specific action",
        {"pluginName": TEXT, "action": TEXT, "args": {"type": "object"}},
        [],
    ),
}
# The name and the description of each resource.
RESOURCES = {
    "session://{sessionId}": ("Session State", "Current state of an OpenCode session"),
    "messages://{sessionId}": ("Session Messages", "All messages in a session"),
    "boulder://state": ("Boulder State", "Current boulder enforcement state"),
}
# The description of each prompt, and its arguments: whether each is required.
PROMPTS = {
    "test_boulder_idle_detection": ("Test boulder idle detection", {"sessionId": True, "idleTime": False}),
    "test_boulder_completion": ("Test boulder completion detection", {"sessionId": True}),
}


def check_tools(listed: Mapping[str, mcp_types.Tool]) -> None:
    """Assert that every tool is listed as it was specified."""
    for name, (description, properties, required) in SPECIFIED_TOOLS.items():
        tool = listed[name]
        assert (tool.description or "").startswith(description), name
        schema = tool.input_schema
        assert schema["type"] == "object" and sorted(schema.get("required", [])) == sorted(required), name
        assert schema.get("additionalProperties", True) is True, name
        for key, wanted in properties.items():
            taken: dict[str, Any] = schema["properties"][key]
            # What may be left out may be null as well.
            assert taken["type"] in (wanted["type"], [wanted["type"], "null"]), (name, key)
            assert taken.get("default") == wanted.get("default"), (name, key)


def check_resources(listed: Mapping[str, mcp_types.Resource | mcp_types.ResourceTemplate]) -> None:
    """Assert that every resource, by its URI or its template, is listed as it was specified."""
    for uri, (name, description) in RESOURCES.items():
        resource = listed[uri]
        assert (resource.name, resource.mime_type) == (name, "application/json")
        assert (resource.description or "").startswith(description), uri


def check_prompts(listed: Mapping[str, mcp_types.Prompt]) -> None:
    """Assert that every prompt is listed as it was specified."""
    for name, (description, arguments) in PROMPTS.items():
        prompt = listed[name]
        assert prompt.description == description
        assert {one.name: bool(one.required) for one in prompt.arguments or ()} == arguments


async def tell(client: Client, name: str, /, **given: Any) -> Any:
    """What a tool answers, which it tells twice: as text, and as structured content."""
    found = await client.call_tool(name, given)
    assert not found.is_error, found
    content = found.content[0]
    assert isinstance(content, mcp_types.TextContent)
    plain: Any = json.loads(content.text)
    assert found.structured_content == (plain if content.text.startswith("{") else {"result": plain})
    return plain


async def fail(client: Client, name: str, /, **given: Any) -> tuple[str, str]:
    """The code with which a tool fails, and what it says."""
    found = await client.call_tool(name, given)
    assert found.is_error and found.structured_content is not None, found
    error = found.structured_content["error"]
    return error["code"], error["message"]


async def read(client: Client, uri: str) -> Any:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, mcp_types.TextResourceContents) and content.mime_type == "application/json"
    return json.loads(content.text)


async def toast(system: FullSystem, session: str, message: str) -> None:
    await system.rest("POST", f"/api/sessions/{session}/toasts", {"message": message, "variant": "success"})


@requirement("session.create.input", "session.info.shape", "session.list.all", "session.get.one", "session.close.one")
@requirement("session.send.input", "session.send.wait", "session.messages.get", "session.wait.message")
@requirement("session.toasts.get", "session.wait.toast", "session.exec.input", "session.history.get")
@requirement("session.resource.session", "session.resource.messages", "session.resource.changes", "session.face.all")
@requirement("plugin.list.all", "plugin.state.get", "plugin.action.trigger", "boulder.state.resource")
@requirement("boulder.prompt.idle", "boulder.prompt.completion", "boulder.control.actions", "wire.tools.structured")
@requirement("term.state.get", "term.shot.input", "house.bind.loopback")
async def test_one_story_is_told_alike_on_every_transport_and_in_both_eras() -> None:
    assert set(session_commands.COMMANDS) >= COMMANDS
    async with start_system_with_sessions("fix") as (system, (path,)):
        # One terminal is enough for all of them.
        stage = (await system.rest("POST", "/api/sessions", {"directory": str(path), "title": "stage"}))["id"]
        await system.rest("POST", f"/api/sessions/{stage}/messages", {"content": "hello", "timeout": 120_000})
        for transport, mode in WAYS:
            told = ClientRecorder()
            async with open_sdk_client(system.daemon, transport, mode, told) as client:
                with anyio.fail_after(LIMIT):
                    await _story(system, client, told, str(path), f"{transport} {mode}")
                    await _stage(client, stage)
                    assert [one["id"] for one in await tell(client, "list_sessions")] == [stage]
        async with open_sdk_client(system.daemon, "http", MODERN) as client:
            await _obeys(client, stage)
            await _alike(system, client, stage)
        # The daemon's ports and those of its agent.
        daemon = psutil.Process(system.daemon.pid)
        listening = [
            (one.pid, end.laddr.ip)
            for one in (daemon, *daemon.children(recursive=True))
            for end in one.net_connections("inet")
            if end.status == psutil.CONN_LISTEN
        ]
        assert {ip for _, ip in listening} == {"127.0.0.1"} and len({pid for pid, _ in listening}) > 1


async def _story(system: FullSystem, client: Client, told: ClientRecorder, path: str, title: str) -> None:
    listed = {one.name: one for one in (await client.list_tools()).tools}
    assert set(listed) >= ASK_TOOLS
    check_tools(listed)
    model = "scripted/scripted"
    made = await tell(client, "create_session", directory=path, agent="build", model=model, title=title)
    id_ = made["id"]
    assert isinstance(id_, str) and isinstance(made["lastActivity"], int | float)
    assert (made["directory"], made["status"], made["messageCount"], made["workspace"]) == (path, "idle", 0, "fix")
    assert (made["agent"], made["model"], made["opencode"], made["notes"]) == ("build", model, "idle", [])

    turn = await tell(client, "send_message", sessionId=id_, content="hello", timeout=120_000)
    assert (turn["status"], turn["content"], turn["error"]) == ("finished", "Good morning.", None)
    said = await tell(client, "get_messages", sessionId=id_)
    assert [(one["role"], one["content"]) for one in said] == [("user", "hello"), ("assistant", "Good morning.")]
    assert await tell(client, "get_messages", sessionId=id_, limit=1) == said[1:]
    assert await tell(client, "get_messages", sessionId=id_, since=said[0]["time"]) == said[1:]
    found = await tell(client, "wait_for_message", sessionId=id_, pattern="Good m.rning")
    assert found["found"] and found["message"]["id"] == said[1]["id"]

    await toast(system, id_, f"all done {title}")
    found = await tell(client, "wait_for_toast", sessionId=id_, pattern=f"done {title}$")
    assert found["found"] and found["toast"]["message"] == f"all done {title}"
    for given in ({"sessionId": id_}, {}):
        assert f"all done {title}" in [one["message"] for one in await tell(client, "get_toasts", **given)]

    run = await tell(client, "execute_tool", sessionId=id_, tool="read", args={"filePath": f"{path}/README.md"})
    assert run["status"] == "completed" and README.strip() in run["output"] and run["origin"] == "execute_tool"
    turn = await tell(client, "send_message", sessionId=id_, content="list", timeout=120_000)
    assert [one["tool"] for one in turn["parts"]] == ["glob"] and turn["content"].endswith("There it is.")
    ran = await tell(client, "get_tool_history", sessionId=id_)
    assert [(one["tool"], one["status"]) for one in ran] == [("read", "completed"), ("glob", "completed")]
    assert all(one["start"] <= one["end"] and one["error"] is None for one in ran)
    assert README.strip() in ran[0]["output"] and ran[1]["input"] == {"pattern": "*.md"}
    assert await tell(client, "get_tool_history", limit=1) == ran[1:]

    templates = {one.uri_template: one for one in (await client.list_resource_templates()).resource_templates}
    check_resources({**templates, **{str(one.uri): one for one in (await client.list_resources()).resources}})
    assert "boulder://state/{sessionId}" in templates
    state = await read(client, f"session://{id_}")
    assert state["messageCount"] == 5 and state == await tell(client, "get_session", sessionId=id_)
    messages = await read(client, f"messages://{id_}")
    assert messages[:2] == said and messages == await tell(client, "get_messages", sessionId=id_)
    await _hears_of_changes(client, told, id_)

    assert id_ in [one["id"] for one in await tell(client, "list_sessions")]
    assert (await tell(client, "get_session", sessionId=id_))["id"] == id_
    assert await tell(client, "close_session", sessionId=id_) == {"id": id_, "closed": True, "deleted": False}


async def _stage(client: Client, id_: str) -> None:
    """The screen, plugins, boulder and prompts."""
    screen = await tell(client, "get_tui_state", sessionId=id_)
    assert (screen["sessionId"], screen["source"]) == (id_, "terminal") and "Good morning." in screen["text"]
    shot = await client.call_tool("take_screenshot", {"sessionId": id_})
    assert not shot.is_error and isinstance(shot.content[1], mcp_types.ImageContent)

    plugins = {one["name"]: one for one in await tell(client, "list_plugins")}
    assert plugins["boulder"]["status"] == "loaded" and plugins["boulder"]["origin"] == "built in"
    asked: dict[str, Any] = {"pluginName": "boulder", "args": {"sessionId": id_}}
    state = await tell(client, "trigger_plugin_action", action="status", **asked)
    assert (state["sessionId"], state["status"]) == (id_, "OFF")
    state = await read(client, f"boulder://state/{id_}")
    assert (state["iteration"], [one["gate"] for one in state["gates"]][:1]) == (0, ["off"])
    every = await read(client, "boulder://state")
    assert await tell(client, "get_plugin_state", pluginName="boulder") == every
    fields = {"iteration", "status", "lastActivity", "lastEnforcement", "failureCount", "stopRequested", "gates"}
    assert fields <= set(state) and fields <= set(every)
    code, words = await fail(client, "trigger_plugin_action")
    assert code == "invalid-input" and "pluginName" in words

    prompts = {one.name: one for one in (await client.list_prompts()).prompts}
    check_prompts(prompts)
    for name in prompts:
        (message,) = (await client.get_prompt(name, {"sessionId": id_})).messages
        assert isinstance(message.content, mcp_types.TextContent) and id_ in message.content.text


async def _obeys(client: Client, id_: str) -> None:
    """Boulder takes every order, in a session in which it is held back all the time."""

    async def order(action: str) -> tuple[str, bool, bool]:
        given = {"pluginName": "boulder", "action": action, "args": {"sessionId": id_}}
        state = await tell(client, "trigger_plugin_action", **given)
        assert state == await read(client, f"boulder://state/{id_}")
        return state["status"], state["stopRequested"], "paused" in [one["gate"] for one in state["gates"]]

    assert await order("pause") == ("OFF", False, True)
    assert await order("on") == ("PAUSED", False, True)
    assert await order("stop") == ("STOPPED", True, True)
    assert await order("off") == ("OFF", True, True)
    assert await order("resume") == ("OFF", False, False)
    assert await order("stop") == ("OFF", True, False)
    assert await order("reset") == ("OFF", False, False)


async def _alike(system: FullSystem, client: Client, id_: str) -> None:
    """Tools, routes and commands answer the same."""
    await toast(system, id_, "seen from everywhere")
    assert (await tell(client, "wait_for_toast", sessionId=id_, pattern="everywhere"))["found"]
    await tell(client, "execute_tool", sessionId=id_, tool="glob", args={"pattern": "*.md"})
    one = f"/{id_}"
    for tool, given, route, words in (
        ("list_sessions", {}, "", ["list"]),
        ("get_session", {"sessionId": id_}, one, ["show", id_]),
        ("get_messages", {"sessionId": id_}, f"{one}/messages", ["messages", id_]),
        ("get_toasts", {"sessionId": id_}, f"{one}/toasts", ["toasts", id_]),
        ("get_tool_history", {"sessionId": id_}, f"{one}/tools", ["history", id_]),
        ("list_asks", {"sessionId": id_}, f"{one}/asks", ["asks", id_]),
    ):
        answers = [await tell(client, tool, **given), await system.rest("GET", f"/api/sessions{route}")]
        answers.append(json.loads((await system.cli("session", *words, "--json")).stdout))
        if tool == "get_messages":
            answers[1:] = [each["messages"] for each in answers[1:]]
        assert answers[0] == answers[1] == answers[2], tool
        assert answers[0] or tool == "list_asks"


async def _hears_of_changes(client: Client, told: ClientRecorder, id_: str) -> None:
    uris = [f"session://{id_}", f"messages://{id_}", f"messages://{id_}?limit=1"]

    async def say() -> None:
        await tell(client, "send_message", sessionId=id_, content="hello", timeout=120_000)

    if client.session.protocol_version == MODERN:
        async with client.listen(resource_subscriptions=uris) as changes:
            await say()
            heard: set[str] = set()
            while heard != set(uris):
                change: Any = await anext(changes)
                heard.add(str(change.uri))
        return
    for uri in uris:
        await client.session.subscribe_resource(uri)  # pyright: ignore[reportDeprecated]
    while {str(one.params.uri) for one in told.heard if hasattr(one.params, "uri")} != set(uris):
        told.news = anyio.Event()
        await say()
        await told.news.wait()


@requirement("session.get.one", "session.info.shape", "session.send.timeout", "session.send.wait")
@requirement("session.wait.timeout", "session.wait.pattern", "session.close.one", "session.exec.input")
@requirement("term.close.killed", "boulder.gates.hold", "boulder.enforce.idle", "boulder.control.actions")
async def test_what_goes_wrong_is_told_with_a_code_and_with_what_there_is() -> None:
    soon = {"ROOKERY_BOULDER_IDLE_SECONDS": "1", "ROOKERY_BOULDER_COOLDOWN_SECONDS": "1"}
    async with (
        start_system_with_sessions("fix", **soon) as (system, (path,)),
        open_sdk_client(system.daemon, "http", MODERN) as client,
    ):
        id_ = (await tell(client, "create_session", directory=str(path)))["id"]
        code, words = await fail(client, "get_session", sessionId="ses_unknown")
        assert code == "session-not-found" and "ses_unknown" in words
        assert (await fail(client, "create_session", directory="/nowhere"))[0] == "workspace-not-found"
        assert (await fail(client, "wait_for_message", sessionId=id_, pattern="("))[0] == "invalid-input"
        assert (await fail(client, "send_message", sessionId=id_))[0] == "invalid-input"
        code, words = await fail(client, "execute_tool", sessionId=id_, tool="nothing", args={})
        assert code == "invalid-input" and all(name in words for name in ("read", "write", "bash", "edit", "grep"))
        code, words = await fail(client, "execute_tool", sessionId=id_, tool="todowrite", args={"todos": []})
        assert code == "invalid-input" and "inside a conversation" in words

        code, words = await fail(client, "send_message", sessionId=id_, content="fail", timeout=120_000)
        assert code == "turn-failed" and "no credit left" in words
        state = await tell(client, "get_session", sessionId=id_)
        assert (state["status"], state["opencode"]) == ("error", "idle") and "no credit left" in state["error"]
        heard: list[str | None] = []

        async def told(progress: float, total: float | None, message: str | None) -> None:
            heard.append(message)

        held = {"sessionId": id_, "content": "hold", "timeout": 1_000}
        turn = (await client.call_tool("send_message", held, progress_callback=told)).structured_content
        assert turn is not None and turn["status"] == "timeout" and turn["content"] == ""
        state = await tell(client, "get_session", sessionId=id_)
        assert (state["status"], state["opencode"]) == ("active", "busy")
        missed = {"sessionId": id_, "pattern": "At last", "timeout": 7_000}
        waited = (await client.call_tool("wait_for_message", missed, progress_callback=told)).structured_content
        assert waited is not None and not waited["found"] and waited["seen"]
        assert heard
        system.model.release("later")
        assert (await tell(client, "wait_for_message", sessionId=id_, pattern="At last"))["found"]
        turn = await tell(client, "send_message", sessionId=id_, content="hello", timeout=120_000)
        assert turn["content"] == "Good morning."

        taken = await tell(client, "send_message", sessionId=id_, content="hello", waitForResponse=False)
        assert taken["status"] == "taken" and taken["messageId"]
        await _runs_away(system, client, id_, path)
        await _closes(system, client, str(path))
        await _is_held(system, client, path)


async def _runs_away(system: FullSystem, client: Client, id_: str, path: Path) -> None:
    """A pattern that would be searched for too long is refused, and another session is waited for meanwhile."""
    other = (await tell(client, "create_session", directory=str(path), title="other"))["id"]
    async with _opencode(system, path) as api:
        await _say(api, id_, "x" * 900_000)
        waiting = asyncio.ensure_future(tell(client, "wait_for_message", sessionId=other, pattern="^quick$"))
        code, words = await fail(client, "wait_for_message", sessionId=id_, pattern="(x{1,100}){1,10}y")
        assert code == "invalid-input" and "too long" in words and not waiting.done()
        await _say(api, other, "quick")
        assert (await waiting)["found"]
    await tell(client, "close_session", sessionId=other)


async def _closes(system: FullSystem, client: Client, path: str) -> None:
    """A session that is closed ends its turn, its waits and its terminal."""
    id_ = (await tell(client, "create_session", directory=path, title="to be closed"))["id"]
    sending = asyncio.ensure_future(client.call_tool("send_message", {"sessionId": id_, "content": "work slowly"}))
    # What it has said by then is seen, and the tool that it ran.
    waited = await system.rest("POST", f"/api/sessions/{id_}/wait", {"for": "tool", "tool": "glob", "timeout": 120_000})
    assert waited["found"]
    held = await system.asked(lambda record: record.session == id_ and record.step == 2)
    assert (await tell(client, "get_tui_state", sessionId=id_))["source"] == "terminal"
    shown = terminals(system)
    waits = [
        asyncio.ensure_future(tell(client, "wait_for_message", sessionId=id_, pattern="never", timeout=600_000)),
        asyncio.ensure_future(tell(client, "wait_for_toast", sessionId=id_, pattern="never", timeout=600_000)),
        asyncio.ensure_future(system.rest("POST", f"/api/sessions/{id_}/wait", {"for": "idle", "timeout": 600_000})),
    ]
    assert not (await asyncio.wait([sending, *waits], timeout=0.1))[0]
    assert await tell(client, "close_session", sessionId=id_) == {"id": id_, "closed": True, "deleted": False}
    # The terminal is gone by the answer, and the model is not waited for any more.
    assert shown and not any(alive(one.pid) for one in shown)
    turn = (await sending).structured_content
    assert turn is not None and turn["error"]["code"] == "turn-failed"
    *missed, idle = await asyncio.gather(*waits)
    assert [(one["found"], one["note"]) for one in missed] == [(False, "the session was closed")] * 2
    # Its turn may be seen to end before it is seen to be closed.
    assert idle["found"] or idle["note"] == "the session was closed"
    await system.asked(lambda record: record is held and record.ended == "client-gone")
    assert id_ not in [one["id"] for one in await tell(client, "list_sessions")]
    for tool in ("get_session", "get_messages", "get_tui_state", "close_session"):
        assert (await fail(client, tool, sessionId=id_))[0] == "session-not-found"


async def _is_held(system: FullSystem, client: Client, path: Path) -> None:
    """Boulder sends nothing to sessions that ask, run a tool, are paused or have spent their budget."""

    async def order(action: str, session: str, **more: Any) -> None:
        given = {"sessionId": session, **more}
        await tell(client, "trigger_plugin_action", pluginName="boulder", action=action, args=given)

    async def is_held(session: str, gate: str, iteration: int = 0) -> None:
        state = await read(client, f"boulder://state/{session}")
        assert gate in [one["gate"] for one in state["gates"]] and state["iteration"] == iteration, state
        said = await tell(client, "get_messages", sessionId=session)
        assert sum("BOULDER ENFORCEMENT" in one["content"] for one in said) == iteration

    async def is_enforced(session: str) -> None:
        given = {"sessionId": session, "pattern": "BOULDER ENFORCEMENT", "timeout": LIMIT * 1000}
        assert (await tell(client, "wait_for_toast", **given))["found"]

    made = [await tell(client, "create_session", directory=str(path), title="held") for _ in range(4)]
    works, paused, spent, later = (one["id"] for one in made)
    for session in (works, paused, spent, later):
        await order("on", session, budget=1)
    await order("pause", paused)
    await tell(client, "send_message", sessionId=works, content="run until told", waitForResponse=False)
    await system.until_all(lambda all_: all_["fix"]["attention"])
    for session in (paused, spent):
        await tell(client, "send_message", sessionId=session, content="hello", timeout=120_000)
    # By the time that one of them was told to go on, none of the others was.
    await is_enforced(spent)
    await is_held(works, "asks")
    await is_held(paused, "paused")

    (ask,) = await tell(client, "list_asks", sessionId=works)
    await tell(client, "answer_ask", askId=ask["id"], reply="once")
    await tell(client, "send_message", sessionId=later, content="hello", timeout=120_000)
    await is_enforced(later)
    await is_held(works, "tool")
    await is_held(paused, "paused")
    await is_held(spent, "budget", 1)
    (path / "go").touch()
    await order("resume", paused)
    await is_enforced(works)
    await is_enforced(paused)
    for session in (works, paused, spent, later):
        await tell(client, "close_session", sessionId=session)


@asynccontextmanager
async def _opencode(system: FullSystem, path: Path) -> AsyncGenerator[OpenCodeApi]:
    """The agent's own API."""
    shown = await system.show({"project": project_id(Path.home() / "src" / "app"), "name": path.name})
    password = psutil.Process(shown["agent"]["pid"]).environ()["OPENCODE_SERVER_PASSWORD"]
    async with OpenCodeApi(f"http://127.0.0.1:{shown['agent']['port']}", path, password) as api:
        yield api


@requirement("session.scope.token", "session.asks.visible", "session.exec.input", "session.exec.real")
@requirement("session.history.get")
async def test_a_workspace_token_sees_its_own_sessions_and_only_the_owner_answers_asks() -> None:
    async with start_system_with_sessions("one", "two", ROOKERY_AGENTS_TOOLSETS="workspace,session") as (system, paths):
        tokens = [await _token(system, name) for name in ("one", "two")]
        async with (
            open_sdk_client(system.daemon, "http", MODERN) as owner,
            open_sdk_client(system.daemon, "http", MODERN, token=tokens[0]) as one,
            open_sdk_client(system.daemon, "http", MODERN, token=tokens[1]) as two,
        ):
            mine = (await tell(one, "create_session", directory=str(paths[0])))["id"]
            other = (await tell(two, "create_session", directory=str(paths[1])))["id"]
            assert {each["id"] for each in await tell(owner, "list_sessions")} >= {mine, other}
            assert other not in [each["id"] for each in await tell(one, "list_sessions")]
            for tool, given in (
                ("get_session", {}),
                ("close_session", {}),
                ("send_message", {"content": "hello"}),
                ("get_messages", {}),
                ("wait_for_message", {"pattern": "x"}),
                ("get_toasts", {}),
                ("wait_for_toast", {"pattern": "x"}),
                ("execute_tool", {"tool": "read", "args": {"filePath": "README.md"}}),
                ("get_tool_history", {}),
                ("get_tui_state", {}),
                ("take_screenshot", {"savePath": "other.png"}),
            ):
                assert (await fail(one, tool, sessionId=other, **given))[0] == "session-not-found", tool
            for uri in (f"session://{other}", f"messages://{other}", f"boulder://state/{other}"):
                assert await read(owner, uri) is not None
                with pytest.raises(MCPError, match="there is no session"):
                    await one.read_resource(uri)
            status = {"pluginName": "boulder", "action": "status", "args": {"sessionId": other}}
            assert (await fail(one, "trigger_plugin_action", **status))[0] == "session-not-found"
            # Where no session is named, it is one of its own.
            await _runs_tools(owner, other, paths[1])
            assert len(await tell(owner, "get_tool_history", sessionId=other)) == 3
            assert await tell(one, "get_tool_history") == []
            assert (await tell(one, "get_tui_state"))["sessionId"] == mine
            assert (await fail(one, "create_session", directory=str(paths[1])))[0] == "tool-denied"
            await toast(system, other, "not for one")
            assert (await tell(owner, "wait_for_toast", sessionId=other, pattern="not for"))["found"]
            assert await tell(one, "get_toasts") == []

            asking = asyncio.ensure_future(tell(one, "send_message", sessionId=mine, content="ask", timeout=120_000))
            await system.until_all(lambda all_: all_["one"]["attention"])
            asks = await tell(owner, "list_asks", sessionId=mine)
            assert (asks[0]["kind"], asks[0]["sessionId"], asks[0]["workspace"]) == ("permission", mine, "one")
            assert (await tell(owner, "get_session", sessionId=mine))["opencode"] == "asking"
            assert (await fail(one, "list_asks"))[0] == "tool-denied"
            assert (await fail(one, "answer_ask", askId=asks[0]["id"], reply="once"))[0] == "tool-denied"
            assert not (paths[0] / "asked.txt").exists()
            await tell(owner, "answer_ask", askId=asks[0]["id"], reply="once")
            assert (await asking)["content"].endswith("Done.")
            assert (paths[0] / "asked.txt").read_text() == "asked\n"
            assert await tell(owner, "list_asks") == []
            await tell(two, "close_session", sessionId=other)
            await _runs_by_itself(system, owner, mine)


async def _runs_tools(client: Client, id_: str, path: Path) -> None:
    """The tools of the agent that change and search files."""

    async def run(tool: str, **args: str) -> str:
        done = await tell(client, "execute_tool", sessionId=id_, tool=tool, args=args)
        assert (done["tool"], done["status"], done["origin"]) == (tool, "completed", "execute_tool")
        return done["output"]

    made = path / "made.txt"
    await run("write", filePath=str(made), content="one two\n")
    await run("edit", filePath=str(made), oldString="two", newString="three")
    assert made.read_text() == "one three\n"
    assert "three" in await run("grep", pattern="one thre+")


async def _runs_by_itself(system: FullSystem, owner: Client, id_: str) -> None:
    """A tool that nobody waits for asks, runs once it is allowed, and one that is aborted is no success."""
    before = await tell(owner, "get_tool_history", sessionId=id_)
    given = {"command": "echo by name", "description": "say it"}
    begun = await tell(owner, "execute_tool", sessionId=id_, tool="bash", args=given, waitForCompletion=False)
    assert (begun["status"], begun["tool"], begun["origin"]) == ("running", "bash", "execute_tool")
    await system.until_all(lambda all_: all_["one"]["attention"])
    (ask,) = await tell(owner, "list_asks", sessionId=id_)
    await tell(owner, "answer_ask", askId=ask["id"], reply="once")
    with anyio.fail_after(LIMIT):
        while (done := (await tell(owner, "get_tool_history", sessionId=id_))[-1])["status"] == "running":
            pass
    assert (done["id"], done["status"], done["output"]) == (begun["id"], "completed", "by name\n")

    await tell(owner, "send_message", sessionId=id_, content="ask", waitForResponse=False)
    await system.until_all(lambda all_: all_["one"]["attention"])
    await system.rest("POST", f"/api/sessions/{id_}/abort")
    await system.rest("POST", f"/api/sessions/{id_}/wait", {"for": "idle", "timeout": 120_000})
    ran = await tell(owner, "get_tool_history", sessionId=id_)
    assert [one["status"] for one in ran[len(before) :]] == ["completed", "aborted"] and ran[-1]["error"]


async def _token(system: FullSystem, name: str) -> str:
    """The token that the agent of a workspace was given."""
    shown = await system.until_all(lambda all_: all_[name]["agent"]["pid"])
    return psutil.Process(shown[name]["agent"]["pid"]).environ()["ROOKERY_TOKEN"]


Page = Callable[[str | None], Awaitable[tuple[list[dict[str, Any]], str | None]]]


async def every_page(page: Page) -> list[list[str]]:
    """The ids of all messages, page by page, the newest page first; `page` answers one and the cursor of the next."""
    found: list[list[str]] = []
    before: str | None = None
    while True:
        messages, before = await page(before)
        found.append([one["id"] for one in messages])
        if before is None:
            return found
        assert before == found[-1][0]


@requirement("session.messages.complete", "session.resource.messages")
async def test_messages_that_are_left_out_are_told_of_and_read_page_by_page() -> None:
    async with (
        start_system_with_sessions("fix") as (system, (path,)),
        open_sdk_client(system.daemon, "http", MODERN) as client,
        open_sdk_client(system.daemon, "stdio", "legacy") as other,
        rookery.connect() as r,
    ):
        id_ = (await tell(client, "create_session", directory=str(path)))["id"]
        async with _opencode(system, path) as api:
            said = [await _say(api, id_, f"message {number}") for number in range(120)]
            assert (await tell(client, "wait_for_message", sessionId=id_, pattern="message 119"))["found"]

            async def by_tool(before: str | None) -> tuple[list[dict[str, Any]], str | None]:
                given = {"sessionId": id_, **({"before": before} if before else {})}
                found = await client.call_tool("get_messages", given)
                return _noted([one.text for one in found.content if isinstance(one, mcp_types.TextContent)])

            async def by_rest(before: str | None) -> tuple[list[dict[str, Any]], str | None]:
                found = await system.rest(
                    "GET", f"/api/sessions/{id_}/messages" + (f"?before={before}" if before else "")
                )
                assert (found["note"] is None) == (found["before"] is None)
                return found["messages"], found["before"]

            async def by_cli(before: str | None) -> tuple[list[dict[str, Any]], str | None]:
                words = ["session", "messages", id_, *(["--before", before] if before else [])]
                found = json.loads((await system.cli(*words, "--json")).stdout)
                told = (await system.cli(*words)).stderr
                assert ("older messages are omitted" in told) == (found["before"] is not None)
                assert found["before"] is None or f"rookery session messages {id_} --before {found['before']}" in told
                return found["messages"], found["before"]

            async def by_python(before: str | None) -> tuple[list[dict[str, Any]], str | None]:
                session = await r.sessions.get(id_)
                found = await session.messages_page(before=before)
                assert await session.messages(before=before) == list(found.messages)
                return [one.as_dict() for one in found.messages], found.before

            pages = [said[70:], said[20:70], said[:20]]
            for page in (by_tool, by_rest, by_cli, by_python):
                assert await every_page(page) == pages, page
            # All of them are one resource, and nothing is left out.
            assert [one["id"] for one in await read(client, f"messages://{id_}")] == said
            newest = await tell(client, "get_messages", sessionId=id_, since=0, limit=200)
            assert [one["id"] for one in newest] == said

            # More than is kept in memory.
            said += [await _say(api, id_, "x" * 990_000) for _ in range(19)]
            said.append(await _say(api, id_, "the last of all"))
            assert (await tell(client, "wait_for_message", sessionId=id_, pattern="the last of all"))["found"]

            async def by_resource(before: str | None) -> tuple[list[dict[str, Any]], str | None]:
                query = f"?before={before}&limit=100" if before else ""
                found = (await other.read_resource(f"messages://{id_}{query}")).contents
                return _noted([one.text for one in found if isinstance(one, mcp_types.TextResourceContents)])

            for page in (by_resource, by_tool):
                found = await every_page(page)
                assert 0 < len(found[0]) < 20 and [one for ids in reversed(found) for one in ids] == said
        code, words = await fail(client, "get_messages", sessionId=id_, before="msg_nobody")
        assert code == "invalid-input" and "msg_nobody" in words


async def _say(api: OpenCodeApi, session: str, text: str) -> str:
    """Put a message into a session that the model is not asked to answer; its id."""
    body = {"noReply": True, "parts": [{"type": "text", "text": text}]}
    return (await api.ask("POST", f"/session/{session}/message", body))["info"]["id"]


def _noted(texts: Sequence[str]) -> tuple[list[dict[str, Any]], str | None]:
    """Messages, and the cursor in the note after them, if there is one."""
    messages, *notes = texts
    if not notes:
        return json.loads(messages), None
    (note,) = notes
    assert "older messages are left out" in note
    return json.loads(messages), re.findall(r"before=(msg_\w+)", note)[0]
