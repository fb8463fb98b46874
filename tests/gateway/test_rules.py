"""Which tools a view shows and allows, and who can intercept calls: filters, switches, policy and hooks."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from rookery.gateway.hooks import ToolCall
from rookery.gateway.names import NamingStyle
from rookery.gateway.provider import Catalog, CatalogEntry
from rookery.gateway.rules import Verdict
from rookery.gateway.table import build_table
from rookery.toolsets.toolset import Toolset
from tests.support.gateway.gateway import Gateway, checkout, start_gateway, view_of, worktree, write
from tests.support.mcp.caller import ERAS, Caller, failure, told, words
from tests.support.mcp.scripted_server import Message, ScriptedServers, ServerScript, text, tool
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

OURS = "hub_list_servers"
NAMES = ("read", "write", "delete_one", "delete_all")


def library(**more: Any) -> Callable[[ScriptedServers], Message]:
    def servers(scripted: ScriptedServers) -> Message:
        return {
            name: scripted.server(name, ServerScript(tools=[tool(one) for one in NAMES]), **more) for name in ("a", "b")
        }

    return servers


async def shown(caller: Caller) -> set[str]:
    return set(await caller.tools()) - {OURS}


def all_but(*hidden: str) -> set[str]:
    return {f"{server}__{name}" for server in "ab" for name in NAMES} - set(hidden)


async def switch(gateway: Gateway, verb: str, name: str = "a", query: str = "", **body: Any) -> Any:
    status, found = await gateway.rest("POST", f"/api/mcp/{name}/{verb}{query}", body)
    assert status == 200, found
    return found


# ---- filters


@requirement("hub.filter.wildcard")
@pytest.mark.parametrize(
    ("tools", "hidden"),
    [
        ({"delete_*": False}, {"delete_one", "delete_all"}),
        ({"delete_*": False, "delete_one": True}, {"delete_all"}),
        ({"*": False, "read": True}, {"write", "delete_one", "delete_all"}),
        (["read", "w*"], {"delete_one", "delete_all"}),
        ({"a__*": False}, set[str]()),
    ],
)
async def test_of_the_wildcards_that_show_or_hide_a_servers_tools_the_last_match_wins(
    tools: Any, hidden: set[str]
) -> None:
    async with start_gateway(library(tools=tools)) as gateway:
        caller = await gateway.caller()
        assert await shown(caller) == all_but(*(f"{server}__{name}" for server in "ab" for name in hidden))
        for name in hidden:
            error = (await caller.call(f"a__{name}"))["error"]
            assert error["code"] == -32602
        assert gateway.scripted.of("a")[0].all("tools/call") == []


@requirement("hub.filter.wildcard")
async def test_a_file_says_which_tools_are_shown_of_all_servers() -> None:
    async with start_gateway(library(), tools={"*__delete_*": False, "b/*": False, "b/read": True}) as gateway:
        assert await shown(await gateway.caller()) == {"a__read", "a__write", "b__read"}
        # However a view names things, a rule is about the one name that a tool has here.
        assert await shown(await gateway.caller("/mcp?names=opencode")) == {"a_read", "a_write", "b_read"}
        assert await shown(await gateway.caller("/mcp?prefix=conflict")) == {"a__read", "b__read", "a__write"}
        write(library()(gateway.scripted), tools={"*": False})
        await gateway.hub.config_watcher.read_again()
        assert await (await gateway.caller()).tools() == []


@requirement("hub.filter.wildcard")
async def test_a_project_can_hide_tools_but_not_show_what_its_user_hides() -> None:
    folder = checkout()
    write({}, folder / ".rookery" / "mcp.json", tools={"*__read": True, "a__write": False})
    async with start_gateway(library(), folder, tools={"*__read": False}) as gateway:
        hidden = all_but("a__read", "b__read")
        assert await shown(await gateway.caller()) == hidden
        assert await shown(await gateway.caller(view_of(folder))) == hidden - {"a__write"}
        assert set(await (await gateway.caller(view_of(folder, "a"))).tools()) == {"delete_one", "delete_all"}


# ---- switches


@requirement("hub.filter.switch")
async def test_servers_and_tools_are_switched_per_level_and_the_narrower_one_decides() -> None:
    left, right = checkout("left"), checkout("right")
    async with start_gateway(library(), left, right) as gateway:
        everywhere, here = await gateway.caller(), await gateway.old_caller(view_of(left))
        there = await gateway.caller(view_of(right))
        await switch(gateway, "disable", tool="delete_*")
        off = {f"a__delete_{one}" for one in ("one", "all")}
        assert await shown(everywhere) == await shown(here) == await shown(there) == all_but(*off)
        await switch(gateway, "enable", query=f"?workspace={left}", tool="delete_one")
        assert await shown(here) == all_but("a__delete_all")
        assert await shown(there) == all_but(*off)
        await switch(gateway, "disable", query=f"?workspace={left}&session={here.session}", tool="*")
        assert await shown(here) == {name for name in all_but() if name.startswith("b__")}
        assert await shown(await gateway.old_caller(view_of(left))) == all_but("a__delete_all")
        assert "error" in await here.call("a__read")
        await switch(gateway, "disable", "b")
        assert await shown(there) == {"a__read", "a__write"}
        assert (await gateway.rest("GET", "/api/mcp"))[1]["b"]["status"] == "disabled"
        await switch(gateway, "enable", "b", query=f"?workspace={right}")
        assert {"b__read", "b__delete_all"} < await shown(there)
        assert not {name for name in await shown(everywhere) if name.startswith("b__")}
        # For a project: in all its workspaces at once, and in no other.
        beside = await gateway.caller(view_of(right, workspace=worktree(right, "beside").name.removeprefix("right-")))
        assert await shown(beside) == {"a__read", "a__write"}
        await switch(gateway, "disable", query=f"?workspace={right}", level="project")
        assert await shown(beside) == set() and "a__read" not in await shown(there)
        assert "a__read" in await shown(everywhere)


@requirement("hub.filter.switch", "hub.pool.lazy")
async def test_a_disabled_server_stops_and_an_enabled_one_starts_on_its_next_use() -> None:
    async with start_gateway(library()) as gateway:
        caller = await gateway.old_caller()
        await caller.listen()
        await caller.tools()
        await caller.hears("notifications/tools/list_changed")
        await switch(gateway, "disable", "a")
        await gateway.scripted.of("a")[0].has_ended()
        await caller.hears("notifications/tools/list_changed", 2)
        assert not {name for name in await shown(caller) if name.startswith("a__")}
        assert "a is disabled" in (await caller.call("a__read"))["error"]["message"]
        await switch(gateway, "enable", "a")
        assert len(gateway.scripted.of("a")) == 1
        assert await shown(caller) == all_but()


@requirement("hub.filter.switch", "hub.config.enabled")
async def test_what_was_switched_stays_so_over_a_restart_but_for_sessions() -> None:
    folder = checkout()
    async with start_gateway(library(), folder) as gateway:
        session = (await gateway.old_caller()).session
        await switch(gateway, "disable", tool="read")
        await switch(gateway, "disable", query=f"?workspace={folder}", tool="write")
        await switch(gateway, "disable", "b", query=f"?session={session}")
        await switch(gateway, "disable", "b", query=f"?workspace={folder}", level="project")
    async with start_gateway(library()) as gateway:
        assert await shown(await gateway.caller()) == all_but("a__read")
        assert await shown(await gateway.caller(view_of(folder))) == {"a__delete_one", "a__delete_all"}


@requirement("hub.filter.switch", "hub.config.enabled")
async def test_a_server_disabled_in_its_file_starts_only_after_it_is_enabled() -> None:
    async with start_gateway(library(enabled=False)) as gateway:
        caller = await gateway.caller()
        assert await shown(caller) == set()
        assert {one.status for one in await gateway.hub.records(None)} == {"disabled"}
        assert gateway.scripted.all == []
        await switch(gateway, "enable", "a")
        assert await shown(caller) == {f"a__{name}" for name in NAMES}
        assert gateway.scripted.of("b") == []


@requirement("hub.api.control", "hub.filter.disconnected")
async def test_a_disconnected_server_is_hidden_and_stays_so_until_it_is_connected() -> None:
    async with start_gateway(library()) as gateway:
        caller = await gateway.caller()
        await caller.tools()
        assert (await switch(gateway, "disconnect"))["status"] == "stopped"
        for _ in range(2):
            assert await shown(caller) == {f"b__{name}" for name in NAMES}
        assert "error" in await caller.call("a__read")
        assert len(gateway.scripted.of("a")) == 1
        assert (await switch(gateway, "connect"))["status"] == "connected"
        assert await shown(caller) == all_but()
        assert [one["status"] for one in gateway.events.of("mcp.status") if one["server"] == "a"] == [
            "pending",
            "connected",
            "stopped",
            "pending",
            "connected",
        ]


# ---- policy


@requirement("guard.policy.rules")
@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_is_allowed_asked_about_or_denied_and_the_model_is_told(era: str) -> None:
    rules = {"*": "ask", "a__*": "allow", "*delete*": "deny", "a/delete_one": "allow"}
    async with start_gateway(library(), permission=rules) as gateway:
        caller = await gateway.caller("/mcp", era, able={})
        listed = await shown(caller)
        assert listed == {"a__read", "a__write", "a__delete_one", "b__read", "b__write"}
        assert told(await caller.call("a__delete_one"))["tool"] == "delete_one"
        denied, asked = await caller.call("a__delete_all"), await caller.call("b__read")
        assert failure(denied) == failure(asked) == "tool-denied"
        assert '"*delete*": "deny"' in words(denied) and "mcp.json" in words(denied)
        assert "needs the user's consent" in words(asked) and '"b__read": "allow"' in words(asked)
        assert failure(await caller.call(OURS)) == "tool-denied"
        assert gateway.scripted.of("b")[0].all("tools/call") == []
        for path in ("/mcp?names=opencode", "/mcp?prefix=never"):
            other = await gateway.caller(path, era)
            names = [name for name in await other.tools() if "delete" in name]
            assert len(names) == 1 and told(await other.call(names[0]))["tool"] == "delete_one"


async def test_a_denied_tool_with_an_output_schema_returns_no_structured_content() -> None:
    def servers(scripted: ScriptedServers) -> Message:
        return {"a": scripted.server("a", ServerScript(tools=[tool("read", outputSchema={"type": "object"})]))}

    async with start_gateway(servers, permission={"*": "ask"}) as gateway:
        denied = await (await gateway.caller(able={})).call("a__read")
        assert denied["result"]["isError"] is True and "needs the user's consent" in words(denied)
        assert "structuredContent" not in denied["result"]


@requirement("guard.policy.rules")
async def test_a_project_may_tighten_and_never_loosen() -> None:
    folder = checkout()
    write({}, folder / ".rookery" / "mcp.json", permission={"*": "allow", "b__read": "deny"})
    async with start_gateway(library(), folder, permission={"a__read": "deny"}) as gateway:
        for path in (view_of(folder), view_of(folder, "a"), view_of(folder, "b")):
            caller = await gateway.caller(path)
            listed = await shown(caller)
            assert not listed & {"a__read", "b__read", "read"}
            name = "read" if "/s/" in path else "a__read"
            assert failure(await caller.call(name)) == "tool-denied"
        assert told(await (await gateway.caller()).call("b__read"))["server"] == "b"


@requirement("guard.policy.rules")
async def test_a_changed_rule_counts_at_once_for_clients_that_are_connected() -> None:
    async with start_gateway(library()) as gateway:
        caller = await gateway.old_caller()
        await caller.listen()
        assert told(await caller.call("a__read"))["tool"] == "read"
        changes = len(caller.all("notifications/tools/list_changed"))
        write(library()(gateway.scripted), permission={"a__read": "deny"})
        await caller.hears("notifications/tools/list_changed", changes + 1)
        while failure_of(await caller.call("a__read")) is None:
            changes += 1
            await caller.hears("notifications/tools/list_changed", changes + 1)
        assert "a__read" not in await shown(caller)
        assert len(gateway.scripted.of("a")) == 1


def failure_of(message: Message) -> str | None:
    return failure(message) if message["result"].get("isError") else None


@requirement("hub.hook.failing")
async def test_a_policy_that_raises_denies() -> None:
    class Raising:
        def is_shown(self, server: str, tool: str, public: str) -> bool:
            return True

        def verdict(self, server: str, tool: str, public: str) -> Verdict:
            raise ZeroDivisionError

    member = Toolset("x", [])
    member.catalog = Catalog(tools=[CatalogEntry("t", Raw(b'{"name":"t"}'))])
    table = build_table([member], NamingStyle(), Raising())
    assert table.tools["t"].verdict.action == "deny"
    assert bytes(table.lists["tools/list"]) == b'{"tools":[]}'


@requirement("guard.policy.rules")
@pytest.mark.parametrize("permission", ["deny", {"*": "nonsense"}, {"*": {"*": "deny"}}, 7])
async def test_a_rule_that_makes_no_sense_holds_back(permission: Any) -> None:
    async with start_gateway(library(), permission=permission) as gateway:
        caller = await gateway.caller()
        assert await caller.tools() == []
        assert failure(await caller.call("a__read")) == "tool-denied"


# ---- hooks


Hooked = Callable[[ToolCall], Awaitable[Raw | None]]


@requirement("hub.hook.around")
@pytest.mark.parametrize("era", ERAS)
async def test_hooks_see_and_may_replace_what_goes_in_and_what_comes_out(era: str) -> None:
    folder = checkout()
    async with start_gateway(library(), folder) as gateway:
        seen: list[Any] = []

        async def before(call: ToolCall) -> Raw | None:
            seen.append((call.server, call.tool, call.public, json.loads(bytes(call.arguments)), call.workspace))
            return Raw(b'{"replaced": 12345678901234567890}') if call.tool == "write" else None

        async def after(call: ToolCall, result: Raw) -> Raw | None:
            seen.append((call.tool, json.loads(bytes(call.arguments)), json.loads(bytes(result))["content"][0]["type"]))
            return Raw(json.dumps(text("replaced too")).encode()) if call.tool == "write" else None

        gateway.service.hooks.before.append(before)
        gateway.service.hooks.after.append(after)
        caller = await gateway.caller(view_of(folder), era)
        assert told(await caller.call("a__read", {"n": 1}))["arguments"] == {"n": 1}
        assert seen == [("a", "read", "a__read", {"n": 1}, str(folder.resolve())), ("read", {"n": 1}, "text")]
        assert words(await caller.call("a__write", {"n": 2})) == "replaced too"
        request = await gateway.scripted.of("a")[0].called("write")
        assert request["params"]["arguments"] == {"replaced": 12345678901234567890}
        assert seen[-1] == ("write", {"replaced": 12345678901234567890}, "text")
        # Whoever gives no arguments gives none to the server either.
        await caller.call("a__read")
        assert "arguments" not in (await gateway.scripted.of("a")[0].called("read", 2))["params"]
        # What is ours is watched as well.
        before_ours = len(seen)
        await caller.call("workspace_get_metadata")
        assert len(seen) == before_ours + 2


@requirement("hub.hook.failing")
async def test_a_hook_that_fails_changes_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with start_gateway(library()) as gateway:

        async def failing(*given: Any) -> Raw | None:
            raise KeyError("hook")

        async def denying(*given: Any) -> Raw | None:
            raise PermissionError("no")

        async def nonsense(*given: Any) -> Any:
            return Raw(b"{nonsense")

        async def not_an_object(*given: Any) -> Any:
            return Raw(b"[1]")

        async def not_even_bytes(*given: Any) -> Any:
            return {"a": 1}

        for hook in (failing, denying, nonsense, not_an_object, not_even_bytes):
            gateway.service.hooks.before.append(hook)
            gateway.service.hooks.after.append(hook)
        caller = await gateway.caller()
        assert told(await caller.call("a__read", {"n": 1})) == {
            "server": "a",
            "tool": "read",
            "pid": gateway.scripted.of("a")[0].pid,
            "arguments": {"n": 1},
        }
        assert caplog.text.count("a hook failed before a__read") == 5
        assert caplog.text.count("a hook failed after a__read") == 5


@requirement("hub.hook.around")
async def test_a_call_that_is_left_while_a_hook_works_goes_no_further() -> None:
    async with start_gateway(library()) as gateway:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def slow(call: ToolCall) -> Raw | None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        caller = await gateway.caller()
        await caller.tools()
        gateway.service.hooks.before.append(slow)
        running = caller.begin("a__read")
        await asyncio.wait_for(begun.wait(), 10)
        running.cancel()
        await asyncio.wait_for(ended.wait(), 10)
        assert gateway.scripted.of("a")[0].all("tools/call") == []
    assert Path.home().is_dir()
