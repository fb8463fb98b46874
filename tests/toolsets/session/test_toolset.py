"""The session tools and resources at a real daemon, with the real OpenCode: every transport, both eras, every scope."""

import asyncio
import json
from typing import Any

import anyio
import mcp_types
import psutil
import pytest
from mcp import Client

from rookery.cli import session as session_commands
from tests.support.e2e import LIMIT, Colony
from tests.support.mcp_clients import MODERN, WAYS, Told
from tests.support.requirements import requirement
from tests.support.sessions import README, a_driven_colony
from tests.support.ways import a_client_of_house

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

SIXTEEN = {
    *("create_session", "list_sessions", "get_session", "close_session"),
    *("send_message", "get_messages", "wait_for_message", "get_toasts", "wait_for_toast"),
    *("get_tui_state", "take_screenshot", "execute_tool", "get_tool_history"),
    *("list_plugins", "get_plugin_state", "trigger_plugin_action"),
}
TOOLS = {*SIXTEEN, "list_asks", "answer_ask"}
RESOURCES = {"session://{sessionId}", "messages://{sessionId}", "boulder://state", "boulder://state/{sessionId}"}
PROMPTS = {"test_boulder_idle_detection", "test_boulder_completion"}
COMMANDS = {
    *("new", "list", "show", "send", "messages", "wait", "toasts", "screen", "screenshot"),
    *("tool", "history", "close"),
}


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


async def toast(colony: Colony, session: str, message: str) -> None:
    await colony.rest("POST", f"/api/sessions/{session}/toasts", {"message": message, "variant": "success"})


@requirement("session.create.input", "session.info.shape", "session.list.all", "session.get.one", "session.close.one")
@requirement("session.send.input", "session.send.wait", "session.messages.get", "session.wait.message")
@requirement("session.toasts.get", "session.wait.toast", "session.exec.input", "session.history.get")
@requirement("session.resource.session", "session.resource.messages", "session.resource.changes", "session.face.all")
@requirement("plugin.list.all", "plugin.state.get", "plugin.action.trigger", "boulder.state.resource")
@requirement("boulder.prompt.idle", "boulder.prompt.completion", "term.state.get")
async def test_one_story_is_told_alike_on_every_transport_and_in_both_eras() -> None:
    assert len(SIXTEEN) == 16 and set(session_commands.COMMANDS) >= COMMANDS
    async with a_driven_colony("fix") as (colony, (path,)):
        # One terminal is enough for all of them.
        stage = (await colony.rest("POST", "/api/sessions", {"directory": str(path), "title": "stage"}))["id"]
        await colony.rest("POST", f"/api/sessions/{stage}/messages", {"content": "hello", "timeout": 120_000})
        for transport, mode in WAYS:
            told = Told()
            async with a_client_of_house(colony.house, transport, mode, told) as client:
                with anyio.fail_after(LIMIT):
                    await _story(colony, client, told, str(path), f"{transport} {mode}")
                    await _stage(client, stage)
                    assert [one["id"] for one in await tell(client, "list_sessions")] == [stage]
        for what in ("messages", "toasts", "asks", "screen", "tools"):
            await colony.rest("GET", f"/api/sessions/{stage}/{what}")


async def _story(colony: Colony, client: Client, told: Told, path: str, title: str) -> None:
    assert {one.name for one in (await client.list_tools()).tools} >= TOOLS
    made = await tell(client, "create_session", directory=path, title=title)
    assert {"id", "directory", "status", "messageCount", "lastActivity"} <= set(made)
    id_ = made["id"]
    assert (made["directory"], made["status"], made["messageCount"], made["workspace"]) == (path, "idle", 0, "fix")

    turn = await tell(client, "send_message", sessionId=id_, content="hello", timeout=120_000)
    assert (turn["status"], turn["content"], turn["error"]) == ("finished", "Good morning.", None)
    said = await tell(client, "get_messages", sessionId=id_)
    assert [(one["role"], one["content"]) for one in said] == [("user", "hello"), ("assistant", "Good morning.")]
    assert await tell(client, "get_messages", sessionId=id_, limit=1) == said[1:]
    assert await tell(client, "get_messages", sessionId=id_, since=said[0]["time"]) == said[1:]
    found = await tell(client, "wait_for_message", sessionId=id_, pattern="Good m.rning")
    assert found["found"] and found["message"]["id"] == said[1]["id"]

    await toast(colony, id_, f"all done {title}")
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

    templates = {one.uri_template for one in (await client.list_resource_templates()).resource_templates}
    assert templates | {one.uri for one in (await client.list_resources()).resources} >= RESOURCES
    assert (await read(client, f"session://{id_}"))["messageCount"] == 5
    assert (await read(client, f"messages://{id_}"))[:2] == said
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
    assert await tell(client, "get_plugin_state", pluginName="boulder") == await read(client, "boulder://state")
    code, words = await fail(client, "trigger_plugin_action")
    assert code == "invalid-input" and "pluginName" in words

    assert {one.name for one in (await client.list_prompts()).prompts} >= PROMPTS
    for name in PROMPTS:
        (message,) = (await client.get_prompt(name, {"sessionId": id_})).messages
        assert isinstance(message.content, mcp_types.TextContent) and id_ in message.content.text


async def _hears_of_changes(client: Client, told: Told, id_: str) -> None:
    uris = [f"session://{id_}", f"messages://{id_}"]

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


@requirement("session.get.one", "session.send.timeout", "session.wait.timeout", "session.wait.pattern")
async def test_what_goes_wrong_is_told_with_a_code_and_with_what_there_is() -> None:
    async with (
        a_driven_colony("fix") as (colony, (path,)),
        a_client_of_house(colony.house, "http", MODERN) as client,
    ):
        id_ = (await tell(client, "create_session", directory=str(path)))["id"]
        code, words = await fail(client, "get_session", sessionId="ses_unknown")
        assert code == "session-not-found" and "ses_unknown" in words
        assert (await fail(client, "create_session", directory="/nowhere"))[0] == "workspace-not-found"
        assert (await fail(client, "wait_for_message", sessionId=id_, pattern="("))[0] == "invalid-input"
        assert (await fail(client, "send_message", sessionId=id_))[0] == "invalid-input"
        assert (await fail(client, "execute_tool", sessionId=id_, tool="nothing", args={}))[0] == "invalid-input"

        code, words = await fail(client, "send_message", sessionId=id_, content="fail", timeout=120_000)
        assert code == "turn-failed" and "no credit left" in words
        heard: list[str | None] = []

        async def told(progress: float, total: float | None, message: str | None) -> None:
            heard.append(message)

        held = {"sessionId": id_, "content": "hold", "timeout": 1_000}
        turn = (await client.call_tool("send_message", held, progress_callback=told)).structured_content
        assert turn is not None and turn["status"] == "timeout" and turn["content"] == ""
        missed = {"sessionId": id_, "pattern": "At last", "timeout": 7_000}
        waited = (await client.call_tool("wait_for_message", missed, progress_callback=told)).structured_content
        assert waited is not None and not waited["found"] and waited["seen"]
        assert heard
        colony.model.release("later")
        assert (await tell(client, "wait_for_message", sessionId=id_, pattern="At last"))["found"]
        turn = await tell(client, "send_message", sessionId=id_, content="hello", timeout=120_000)
        assert turn["content"] == "Good morning."

        taken = await tell(client, "send_message", sessionId=id_, content="hello", waitForResponse=False)
        assert taken["status"] == "taken" and taken["messageId"]


@requirement("session.scope.token", "session.asks.visible")
async def test_a_workspaces_token_sees_its_own_sessions_and_only_the_owner_answers_what_is_asked() -> None:
    async with a_driven_colony("one", "two", ROOKERY_AGENTS_TOOLSETS="workspace,session") as (colony, paths):
        tokens = [await _token(colony, name) for name in ("one", "two")]
        async with (
            a_client_of_house(colony.house, "http", MODERN) as owner,
            a_client_of_house(colony.house, "http", MODERN, token=tokens[0]) as one,
            a_client_of_house(colony.house, "http", MODERN, token=tokens[1]) as two,
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
            ):
                assert (await fail(one, tool, sessionId=other, **given))[0] == "session-not-found", tool
            assert (await fail(one, "create_session", directory=str(paths[1])))[0] == "tool-denied"
            await toast(colony, other, "not for one")
            assert (await tell(owner, "wait_for_toast", sessionId=other, pattern="not for"))["found"]
            assert await tell(one, "get_toasts") == []

            asking = asyncio.ensure_future(tell(one, "send_message", sessionId=mine, content="ask", timeout=120_000))
            await colony.until_all(lambda all_: all_["one"]["attention"])
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


async def _token(colony: Colony, name: str) -> str:
    """The token that the agent of a workspace was given."""
    shown = await colony.until_all(lambda all_: all_[name]["agent"]["pid"])
    return psutil.Process(shown[name]["agent"]["pid"]).environ()["ROOKERY_TOKEN"]
