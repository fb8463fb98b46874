"""What the audit has of each call: in both eras, with and without a task, allowed, denied, asked about or cancelled."""

import asyncio
import json
from typing import Any

import pytest

from rookery.guard.audit.records import AuditFilter, AuditRecord
from rookery.system.ids import project_id
from tests.support.gateway.fastpath import count_fast_calls, open_holding_caller, open_repeat_caller
from tests.support.gateway.gateway import Gateway, checkout, start_gateway, view_of
from tests.support.mcp.caller import ERAS, Caller, Message, failure, told
from tests.support.mcp.scripted_server import ScriptedServers, ServerScript, tool
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("era", ERAS)
SECRET = "correct horse battery staple"


async def find(gateway: Gateway, *events: str) -> list[AuditRecord]:
    page = await gateway.parts.audit.find(AuditFilter(events=frozenset(events)), 1000)
    return list(page.records)


def shown(record: AuditRecord) -> tuple[str | None, ...]:
    return record.event, record.server, record.tool, record.verdict, record.outcome


@requirement("guard.audit.record")
@BOTH
async def test_each_call_is_one_record_with_and_without_a_task(era: str) -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        repeat = await open_repeat_caller(gateway, era, view_of(folder))
        with count_fast_calls() as counts:
            for _ in range(3):
                assert "result" in await repeat.call({"x": SECRET})
        assert counts.count() == (3, 0)
        records = await find(gateway)
        # The first two, which need a task, were made to get known.
        assert [shown(record) for record in records] == [("call", "one", "echo", "allowed", "answered")] * 5
        assert {(record.principal, record.workspace) for record in records} == {("owner", str(folder.resolve()))}
        assert {record.session for record in records} == {repeat.caller.session}
        sizes = {record.arguments_bytes for record in records}
        assert sizes == {len("{}"), len(json.dumps({"x": SECRET}))}
        assert len({record.arguments_hash for record in records}) == 2
        for record in records:
            assert record.ms is not None and 0 <= record.ms < 60_000 and record.result_bytes
            assert abs(record.time - records[0].time) < 600
        assert SECRET not in str(records)
        assert (await gateway.parts.audit.verify()).intact


@requirement("guard.audit.record")
@BOTH
async def test_a_call_on_the_fast_path_that_ends_otherwise_is_recorded_once(era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway, era)
        before = len(await find(gateway))
        with count_fast_calls() as counts:
            server.refuse(await repeat.held(server, {"x": SECRET}), -32099, "no")
            assert (await repeat.answer())["error"]["code"] == -32099
        assert counts.count() == (1, 1)
        (record,) = (await find(gateway))[before:]
        assert shown(record) == ("call", "one", "hold", "allowed", "error -32099")
        assert (record.arguments_bytes, record.result_bytes) == (len(json.dumps({"x": SECRET})), None)
        assert record.ms is not None and record.ms > 0


@requirement("guard.audit.record")
@BOTH
async def test_denials_unknown_names_and_questions_are_records(era: str) -> None:
    def servers(scripted: ScriptedServers) -> Message:
        names = ("read", "delete", "send")
        return {"a": scripted.server("a", ServerScript(tools=[tool(name) for name in names]))}

    async with start_gateway(servers, permission={"a__delete": "deny", "a__send": "ask"}) as gateway:
        caller = await gateway.caller("/mcp", era)
        await caller.tools()
        replies = iter([{"action": "accept", "content": {"allow": True}}, {"action": "decline"}])

        async def answer(message: Message) -> Any:
            return next(replies)

        caller.answers["elicitation/create"] = answer
        assert failure(await caller.call("a__delete", {"path": SECRET})) == "tool-denied"
        assert "there is no tool" in (await caller.call("a__none", {}))["error"]["message"]
        assert told(await call_and_answer(caller, "a__send"))["tool"] == "send"
        assert failure(await call_and_answer(caller, "a__send")) == "tool-denied"
        unable = await gateway.caller("/mcp", era, able={})
        assert failure(await unable.call("a__send", {})) == "tool-denied"
        assert [shown(record) for record in await find(gateway)] == [
            ("call", "a", "delete", "denied", "rule-deny"),
            ("call", None, "a__none", "denied", "not-found"),
            ("ask", "a", "send", "allowed", "allowed"),
            ("call", "a", "send", "allowed", "answered"),
            ("ask", "a", "send", "denied", "declined"),
            ("call", "a", "send", "denied", "rule-ask"),
            ("call", "a", "send", "denied", "rule-ask"),
        ]


async def call_and_answer(caller: Caller, name: str) -> Message:
    """Call a tool; a modern client answers its questions with further requests."""
    message = await caller.call(name, {})
    while caller.modern and message["result"].get("resultType") == "input_required":
        asked = message["result"]["inputRequests"]
        replies = {key: await caller.answers[one["method"]](one) for key, one in asked.items()}
        more = {"inputResponses": replies, "requestState": message["result"]["requestState"]}
        message = await caller.ask("tools/call", {"name": name, "arguments": {}, **more})
    return message


@requirement("guard.audit.record")
async def test_prompts_resources_search_and_our_own_tools_are_records() -> None:
    def servers(scripted: ScriptedServers) -> Message:
        prompt = {"name": "review"}
        resource = {"uri": "file:///a.txt", "name": "a"}
        return {"a": scripted.server("a", ServerScript(prompts=[prompt], resources=[resource]))}

    async with start_gateway(servers) as gateway:
        caller = await gateway.caller()
        await caller.tools()
        await caller.ask("prompts/get", {"name": "a__review"})
        (listed,) = await caller.listed_of_servers("resources")
        await caller.ask("resources/read", {"uri": listed["uri"]})
        told(await caller.call("hub_list_servers"))
        finder = await gateway.caller("/mcp?mode=search")
        await finder.call("hub_find_tool", {"query": SECRET})
        told(await finder.call("hub_call_tool", {"name": "a__echo", "arguments": {}}))
        assert [shown(record)[:3] for record in await find(gateway)] == [
            ("prompt", "a", "review"),
            ("resource", "a", "file:///a.txt"),
            ("call", "hub", "hub_list_servers"),
            ("call", "search", "hub_find_tool"),
            ("call", "a", "echo"),
        ]


@BOTH
async def test_a_call_that_a_stopped_server_ends_is_a_record(era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller("/mcp", era)
        await caller.tools()
        server = await gateway.scripted.comes("one")
        calling = caller.begin("one__hold", {"x": 1})
        await server.called("hold")
        await gateway.hub.disconnect(None, None, "one")
        code = failure(await calling)
        (record,) = [record for record in await find(gateway) if record.tool == "hold"]
        assert shown(record) == ("call", "one", "hold", "allowed", code)
        assert (record.arguments_bytes, record.result_bytes) == (len('{"x": 1}'), None)


@requirement("guard.audit.record")
async def test_a_call_with_the_token_of_a_workspace_names_it() -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder, with_tokens=True) as gateway:
        workspace = await gateway.workspaces.find(project_id(folder), "@main")
        token = await gateway.workspaces.token(workspace.workspace)
        headers = {"Authorization": f"Bearer {token}"}
        caller = await gateway.caller(view_of(folder), headers=headers)
        told(await caller.call("one__echo", {}))
        (call,) = await find(gateway, "call")
        assert (call.principal, call.workspace) == (f"workspace {folder.resolve() / '.git'}", str(folder.resolve()))


async def test_records_of_several_clients_at_once_are_all_there() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        callers = [await gateway.caller("/mcp", era) for era in ERAS for _ in range(4)]
        for caller in callers:
            await caller.tools()
        await asyncio.gather(*(caller.call("one__echo", {"x": n}) for caller in callers for n in range(10)))
        assert len(await find(gateway, "call")) == 80
