"""The operations on the audit: what each interface returns, and to whom."""

import pytest

from rookery.guard.audit.records import AuditRecord
from rookery.system.fs import paths
from rookery.system.ids import project_id
from tests.support.gateway.gateway import OWNERS, Gateway, checkout, start_gateway, view_of
from tests.support.mcp.caller import told
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


async def make_calls(gateway: Gateway, count: int = 3) -> None:
    caller = await gateway.caller(headers={"Authorization": f"Bearer {OWNERS}"})
    await caller.tools()
    for number in range(count):
        told(await caller.call("one__echo", {"x": number}))


@requirement("guard.audit.query")
async def test_rest_and_the_tool_of_the_owner_return_the_same_records() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one"), with_tokens=True) as gateway:
        await make_calls(gateway)
        status, page = await gateway.rest("GET", "/api/audit?tool=echo&limit=2")
        assert status == 200 and page["more"] and [record["id"] for record in page["records"]] == [2, 3]
        assert {field for record in page["records"] for field in record} == {*AuditRecord.__struct_fields__}
        admin = await gateway.caller("/mcp?toolsets=admin", headers={"Authorization": f"Bearer {OWNERS}"})
        assert told(await admin.call("audit_list", {"tool": "echo", "limit": 2})) == page
        verified = told(await admin.call("audit_verify", {}))
        assert verified["intact"] and verified["faults"] == []
        status, checked = await gateway.rest("GET", "/api/audit/verification")
        assert (status, checked["intact"]) == (200, True)


@requirement("guard.audit.query")
async def test_a_request_with_a_wait_returns_when_a_record_comes() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one"), with_tokens=True) as gateway:
        await make_calls(gateway, 1)
        _, page = await gateway.rest("GET", "/api/audit")
        _, empty = await gateway.rest("GET", f"/api/audit?after={page['last']}&wait=0.05")
        assert (empty["records"], empty["last"]) == ([], page["last"])
        await make_calls(gateway, 1)
        _, new = await gateway.rest("GET", f"/api/audit?after={page['last']}&wait=60&server=one")
        assert [record["tool"] for record in new["records"]] == ["echo"]


async def test_what_cannot_be_meant_is_refused_with_what_to_do() -> None:
    async with start_gateway() as gateway:
        status, answer = await gateway.rest("GET", "/api/audit?event=call,nothing")
        assert status == 400 and "there is no event 'nothing'" in answer["error"]["message"]
        assert "approval" in answer["error"]["remedy"]
        assert (await gateway.rest("GET", "/api/audit?after=1&before=2"))[0] == 400
        assert (await gateway.rest("GET", "/api/audit?limit=0"))[0] == 400


async def test_the_token_of_a_workspace_reads_nothing_and_gets_no_such_tool() -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder, with_tokens=True) as gateway:
        workspace = await gateway.workspaces.find(project_id(folder), "@main")
        headers = {"Authorization": f"Bearer {await gateway.workspaces.token(workspace.workspace)}"}
        async with gateway.http.get(gateway.url("/api/audit"), headers=headers) as answer:
            assert answer.status == 403
        caller = await gateway.caller(view_of(folder), headers=headers)
        assert not [name for name in await caller.listed("tools") if name["name"].startswith("audit")]


@requirement("guard.audit.cost")
async def test_e12_an_audit_that_cannot_be_written_fails_no_call_and_is_written_later() -> None:
    obstacle = paths.audit_file(paths.ensure_private_folder(paths.state_folder()))
    obstacle.mkdir()
    async with start_gateway(lambda scripted: scripted.servers("one"), with_tokens=True) as gateway:
        await make_calls(gateway, 20)
        status, answer = await gateway.rest("GET", "/api/audit")
        assert (status, answer["error"]["code"]) == (500, "store-failed")
        (problem,) = gateway.parts.audit.problems
        assert "the audit cannot be written" in problem and "20 records wait in memory" in problem
        await make_calls(gateway, 20)
        obstacle.rmdir()
        _, page = await gateway.rest("GET", "/api/audit")
        assert [record["event"] for record in page["records"]] == [*["call"] * 40, "audit"]
        assert gateway.parts.audit.problems == []
