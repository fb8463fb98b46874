"""State and actions of plugins over MCP and REST, and their hooks for calls through the gateway."""

from typing import Any

import pytest

from rookery.daemon.settings.schema import Settings
from rookery.system.ids import project_id
from tests.support.gateway.gateway import view_of
from tests.support.mcp.caller import failure, told, words
from tests.support.plugins.project import approve, in_plugins, listed, source, start_project
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("plugin.state.get", "plugin.action.trigger")
async def test_plugin_tools_require_no_arguments_and_errors_list_what_exists() -> None:
    action = "@plugin.action('add', scoped=True)\ndef add(args, house):\n    return args['a'] + args['b']\n"
    async with start_project({in_plugins("notify.py"): source(more=action)}) as (gateway, _):
        caller = await gateway.caller()
        tools = {one["name"]: one["inputSchema"] for one in await caller.listed("tools")}
        for name, fields in (
            ("list_plugins", set[str]()),
            ("get_plugin_state", {"pluginName", "stateKey"}),
            ("trigger_plugin_action", {"pluginName", "action", "args"}),
        ):
            assert tools[name]["type"] == "object" and not tools[name].get("required")
            assert fields <= {*tools[name].get("properties", {})}
        state = {"version": "1.0", "scope": "None"}
        assert told(await caller.call("get_plugin_state", {"pluginName": "notify"})) == state
        one = await caller.call("get_plugin_state", {"pluginName": "notify", "stateKey": "version"})
        assert words(one) == '"1.0"' and one["result"]["structuredContent"] == {"result": "1.0"}
        every = told(await caller.call("get_plugin_state", {}))
        assert {one["plugin"]: one["state"] for one in every}["notify"] == state
        assert (await gateway.rest("GET", "/api/plugins/notify/state?key=version")) == (200, "1.0")
        assert (await gateway.rest("GET", "/api/plugins/state?key=version"))[1][0]["state"] == "1.0"
        asked = {"pluginName": "notify", "action": "add", "args": {"a": 1, "b": 2}}
        assert words(await caller.call("trigger_plugin_action", asked)) == "3"
        rest = await gateway.rest("POST", "/api/plugins/notify/actions/add", {"args": {"a": "x", "b": "y"}})
        assert rest == (200, {"result": "xy"})
        for given, code, said in (
            ({}, "invalid-input", "there are: boulder: "),
            ({"pluginName": "nobody"}, "plugin-not-found", "notify: add"),
            ({"pluginName": "notify"}, "invalid-input", "there are: notify: add"),
            ({"pluginName": "notify", "action": "take"}, "invalid-input", "there are: notify: add"),
        ):
            refused = await caller.call("trigger_plugin_action", given)
            assert failure(refused) == code and said in words(refused)
        refused = await caller.call("get_plugin_state", {"pluginName": "notify", "stateKey": "volume"})
        assert failure(refused) == "invalid-input" and "there are: version; scope" in words(refused)
        broken = await caller.call("trigger_plugin_action", asked | {"args": {}})
        assert failure(broken) == "plugin-failed" and "KeyError" in words(broken)
        assert (await gateway.rest("POST", "/api/plugins/notify/actions/add", {}))[0] == 502
        assert (await gateway.rest("POST", "/api/plugins/notify/actions/take", {}))[0] == 400


@requirement("plugin.state.get")
async def test_state_files_are_read_only_inside_the_workspace_and_errors_are_reported() -> None:
    files = {".omo/boulder.json": '{"iteration": 4, "works": {}}', ".mine/state.json": "{", "big.json": " " * 5_000_000}
    paths = {"mine": ".mine/state.json", "out": "../secret.json", "big": "big.json", "none": "no.json", "wrong": 7}
    async with start_project(files, settings=Settings(plugins={"state_files": paths})) as (gateway, app):
        (app.parent / "secret.json").write_text('{"secret": 1}')
        (app / ".sisyphus").mkdir()
        (app / ".sisyphus" / "boulder.json").symlink_to(app.parent / "secret.json")
        (app / ".nexus" / "boulder").mkdir(parents=True)
        (app / ".nexus" / "boulder" / "state.json").write_text("[" * 100_000)
        caller = await gateway.caller()
        asked = {"pluginName": "oh-my-opencode", "stateKey": "iteration"}
        assert words(await caller.call("get_plugin_state", asked)) == "4"
        every = {one["plugin"]: one for one in told(await caller.call("get_plugin_state", {}))}
        assert {*every} == {"boulder", "oh-my-opencode", "sisyphus", "nexus", "mine", "out", "big"}
        assert every["oh-my-opencode"]["workspace"] == str(app)
        assert "is not valid JSON" in every["mine"]["error"] and "bytes" in every["big"]["error"]
        assert "recursion" in every["nexus"]["error"]
        assert all(every[name]["error"] and every[name]["state"] is None for name in ("out", "sisyphus"))
        refused = await caller.call("get_plugin_state", {"pluginName": "mine"})
        assert failure(refused) == "plugin-failed" and "is not valid JSON" in words(refused)


BEFORE = """
@plugin.on("tool.execute.before")
async def before(event, house):
    if event.arguments.get("fail"):
        raise ValueError("as you wish")
    return {**event.arguments, "seen": [event.server, event.tool, event.name, event.project]}
"""
AFTER = """
@plugin.on("tool.execute.after")
def after(event, house):
    return {"content": [{"type": "text", "text": "instead of " + event.result["content"][0]["text"]}]}
"""


@requirement("hub.hook.around", "hub.hook.failing")
async def test_tool_hooks_run_only_in_their_project_and_cost_nothing_without_plugins() -> None:
    def servers(scripted: Any) -> Any:
        return scripted.servers("one")

    async with start_project({in_plugins("plain.py"): source("plain")}, servers) as (gateway, app):
        hooks = gateway.service.hooks
        inside, outside = await gateway.caller(view_of(app, "one")), await gateway.caller()
        assert not hooks
        for name, more in (("before", BEFORE), ("after", AFTER)):
            (app / in_plugins(f"{name}.py")).write_text(source(name, more=more))
            await approve(gateway, f"{name}.py")
        assert (len(hooks.before), len(hooks.after)) == (1, 1)
        said = words(await inside.call("echo", {"a": 1}))
        assert said.startswith("instead of ") and f'["one", "echo", "echo", "{project_id(app)}"]' in said
        # Elsewhere nothing of it is seen.
        assert "seen" not in words(await outside.call("one__echo", {"a": 1}))
        for _ in range(gateway.parts.plugins.registry._context.limits.failures):
            assert '"fail": 1' in words(await inside.call("echo", {"fail": 1}))
        hook = (await listed(gateway))["before loaded"]["hooks"][0]
        assert hook["failures"] == 5 and "as you wish" in hook["off"]
        assert (len(hooks.before), len(hooks.after)) == (0, 1)
        (app / in_plugins("after.py")).write_text(source("after", "2.0"))
        await approve(gateway, "after.py")
        assert not hooks
