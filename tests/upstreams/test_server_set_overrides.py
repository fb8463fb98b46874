"""Servers that a repository changes, and servers whose placeholders have no value, as clients see them."""

from typing import Any

import pytest

from tests.support.gateway.gateway import checkout, start_gateway, view_of, write
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("servers.config.partial")
async def test_c10_c24_a_repository_narrows_at_once_and_widens_after_approval() -> None:
    folder = checkout()
    where = f"?workspace={folder.resolve()}"
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        file = folder / ".rookery" / "mcp.json"

        async def change(entry: dict[str, Any]) -> tuple[str, list[str]]:
            """Return the status of the server and its tools in the workspace, with this entry in the repository."""
            write({"one": entry}, file)
            await gateway.hub.config_watcher.read_again()
            caller = await gateway.caller(view_of(folder, "one"))
            tools = await caller.tools()
            return (await gateway.rest("GET", f"/api/mcp/one{where}"))[1]["status"], tools

        status, all_tools = await change({"enabled": True})
        assert status == "connected" and "echo" in all_tools
        status, tools = await change({"tools": {"echo": False}, "timeouts": {"execution": 5}})
        assert (status, tools) == ("connected", [name for name in all_tools if name != "echo"])
        assert (await change({"enabled": False}))[0] == "disabled"
        # The user's own view is as before.
        assert "one__echo" in await (await gateway.caller()).tools()
        started = len(gateway.scripted.all)
        assert await change({"environment": {"NODE_OPTIONS": "--require ./evil.js"}}) == ("needs_approval", [])
        assert len(gateway.scripted.all) == started
        (subject,) = await gateway.service.list_waiting()
        assert "--require ./evil.js" in subject.content and '"extends"' in subject.content
        await gateway.approvals.approve(subject, subject.digest)
        await gateway.service.on_approvals_changed(subject.key)
        _, record = await gateway.rest("POST", f"/api/mcp/one/connect{where}")
        assert record["status"] == "connected"
        assert gateway.scripted.all[-1].env["NODE_OPTIONS"] == "--require ./evil.js"


@requirement("servers.config.partial")
async def test_a_reference_without_a_value_fails_its_server_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    async with start_gateway(lambda scripted: scripted.servers("one", "two")) as gateway:
        for value, reason in (
            ("{env:NO_SUCH_VARIABLE}", "the variable NO_SUCH_VARIABLE is not set"),
            ("{file:no-such-file}", "{file:no-such-file} cannot be read"),
        ):
            servers: dict[str, Any] = gateway.scripted.servers("one", "two")
            servers["two"] = servers["two"] | {"environment": {"TOKEN": value}}
            write({**servers, "three": {"url": value}})
            await gateway.hub.config_watcher.read_again()
            caller = await gateway.caller()
            assert {name.partition("__")[0] for name in await caller.tools()} - {"hub_list_servers"} == {"one"}
            for name in ("two", "three"):
                record = next(record for record in await gateway.hub.records(None) if record.name == name)
                assert record.status == "failed" and reason in str(record.error)
                _, found = await gateway.rest("POST", f"/api/mcp/{name}/connect")
                assert found["error"]["code"] == "upstream-failed"
                assert f'MCP server "{name}" failed: {reason}' in found["error"]["message"]
                assert f"{name} is failed ({reason}" in (await caller.call(f"{name}__echo"))["error"]["message"]
            assert [server.name for server in gateway.scripted.all if server.name != "one"] == []
