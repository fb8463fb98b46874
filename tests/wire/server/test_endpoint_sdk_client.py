"""The official SDK as the client: all its requests succeed, on every transport and in every revision."""

import json
from typing import Any

import anyio
import mcp_types
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from rookery.wire.protocol import revisions
from tests.conformance.busy import PLAIN_TOOLS, WATCHED, Busy
from tests.support.http.listener import LIMIT
from tests.support.mcp.sdk_client import (
    HANDSHAKE,
    MODERN,
    WAYS,
    ClientRecorder,
    open_client,
    open_client_of,
    start_endpoint,
)
from tests.support.requirements import requirement

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
every_way = pytest.mark.parametrize(("transport", "mode"), WAYS, ids=lambda value: str(value))
over_the_network = pytest.mark.parametrize(
    ("transport", "mode"), [way for way in WAYS if way[0] != "stdio"], ids=lambda value: str(value)
)


def words(result: mcp_types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, mcp_types.TextContent)
    return content.text


@every_way
@requirement("wire.tools.list", "wire.tools.call", "wire.stdio.server", "wire.sse.server", "wire.websocket.server")
async def test_every_tool_is_listed_and_answers(transport: str, mode: str) -> None:
    with anyio.fail_after(LIMIT):
        async with open_client(transport, mode) as client:
            assert client.protocol_version == (HANDSHAKE if mode == "legacy" else MODERN)
            tools = (await client.list_tools()).tools
            assert sorted(tool.name for tool in tools) == sorted(Busy()._tools)
            assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools)
            for name, kinds in PLAIN_TOOLS.items():
                result = await client.call_tool(name, {})
                assert [content.type for content in result.content] == kinds
                assert bool(result.is_error) == (name == "test_error_handling")
            given = {"name": "ü", "address": {"city": ["\u2028"]}}
            assert (
                json.loads(words(await client.call_tool("json_schema_2020_12_tool", given)).partition(": ")[2]) == given
            )


@every_way
@requirement("wire.websocket.server", "wire.stdio.server", "wire.sse.server")
async def test_resources_prompts_and_completion_are_served(transport: str, mode: str) -> None:
    with anyio.fail_after(LIMIT):
        async with open_client(transport, mode) as client:
            assert WATCHED in {resource.uri for resource in (await client.list_resources()).resources}
            (template,) = (await client.list_resource_templates()).resource_templates
            assert template.uri_template == "test://template/{id}/data"
            (content,) = (await client.read_resource("test://template/7/data")).contents
            assert isinstance(content, mcp_types.TextResourceContents) and '"id": "7"' in content.text
            assert len((await client.list_prompts()).prompts) == 5
            prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
            assert isinstance(prompt.messages[0].content, mcp_types.TextContent)
            assert "arg1='a', arg2='b'" in prompt.messages[0].content.text
            reference = mcp_types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
            assert (await client.complete(reference, {"name": "arg1", "value": "x"})).completion.values == []


@every_way
@requirement("wire.cancel.progress")
async def test_progress_and_log_messages_come_before_the_answer(transport: str, mode: str) -> None:
    told = ClientRecorder()
    steps: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    with anyio.fail_after(LIMIT):
        async with open_client(transport, mode, told) as client:
            await client.call_tool("test_tool_with_progress", {}, progress_callback=on_progress)
            assert [step[:2] for step in steps] == [(0, 100), (50, 100), (100, 100)]
            await client.call_tool("test_logging_tool", {})
            assert [level for level, _ in told.logged] == ["debug", "info", "error"]


@every_way
async def test_a_client_hears_no_log_below_its_level(transport: str, mode: str) -> None:
    told = ClientRecorder()
    with anyio.fail_after(LIMIT):
        async with open_client(transport, mode, told) as client:
            meta: Any = None
            if mode == "legacy":
                await client.session.set_logging_level("warning")  # pyright: ignore[reportDeprecated]
            else:
                meta = {revisions.META_LOG_LEVEL: "warning"}
            await client.call_tool("test_logging_tool", {}, meta=meta)
            assert [level for level, _ in told.logged] == ["error"]


@every_way
@requirement("wire.modern.results")
async def test_the_client_is_asked_and_its_answers_are_used(transport: str, mode: str) -> None:
    with anyio.fail_after(LIMIT):
        async with open_client(transport, mode) as client:
            assert words(await client.call_tool("test_input_required_result_elicitation", {})) == "Hello, Ada!"
            assert words(await client.call_tool("test_sampling", {"prompt": "?"})) == "LLM response: Paris"
            assert "file:///here" in words(await client.call_tool("test_input_required_result_list_roots", {}))
            asked = await client.call_tool("test_input_required_result_multiple_inputs", {})
            assert words(asked) == '["client_roots", "greeting", "user_name"]'
            assert "Ada" in words(await client.call_tool("test_input_required_result_multi_round", {}))


@every_way
@requirement("wire.modern.listen", "wire.sse.server")
async def test_a_subscriber_hears_of_changes(transport: str, mode: str) -> None:
    told = ClientRecorder()
    with anyio.fail_after(LIMIT):
        async with open_client(transport, mode, told) as client:
            if mode == "legacy":
                await client.session.subscribe_resource(WATCHED)  # pyright: ignore[reportDeprecated]
                # Over Streamable HTTP the stream for this is opened beside; nobody tells when it is there.
                while not told.news.is_set():
                    await client.call_tool("touch", {})
                await client.list_tools()
                assert {type(message) for message in told.heard} == {mcp_types.ResourceUpdatedNotification}
                assert {message.params.uri for message in told.heard} == {WATCHED}
            else:
                async with client.listen(tools_list_changed=True, resource_subscriptions=[WATCHED]) as changes:
                    assert changes.honored.tools_list_changed
                    await client.call_tool("test_trigger_prompt_change", {})
                    await client.call_tool("touch", {})
                    assert type(await anext(changes)).__name__ == "ResourceUpdated"
                    await client.call_tool("test_trigger_tool_change", {})
                    assert type(await anext(changes)).__name__ == "ToolsListChanged"
                # Ended by the client, and nothing else with it.
                assert words(await client.call_tool("touch", {})) == "touched"


@every_way
@requirement("wire.cancel.progress")
async def test_a_call_that_the_client_gives_up_is_cancelled_at_its_provider(transport: str, mode: str) -> None:
    with anyio.fail_after(LIMIT):
        async with open_client(transport, mode) as client:
            with anyio.CancelScope() as call:

                async def begun(progress: float, total: float | None, message: str | None) -> None:
                    call.cancel()

                await client.call_tool("hang", {}, progress_callback=begun)
            assert call.cancelled_caught
            assert words(await client.call_tool("count_cancelled", {"least": 1})) == "1"


@every_way
@requirement("wire.server.concurrent")
async def test_calls_of_one_client_are_worked_on_at_the_same_time(transport: str, mode: str) -> None:
    heard: list[str] = []

    with anyio.fail_after(LIMIT):
        async with open_client(transport, mode) as client, anyio.create_task_group() as calls:

            async def call(word: str) -> None:
                heard.append(words(await client.call_tool("meet", {"word": word})))

            calls.start_soon(call, "one")
            calls.start_soon(call, "two")
    assert sorted(heard) == ["one", "two"]


@over_the_network
@requirement("wire.server.concurrent")
async def test_a17_equal_ids_on_two_connections_get_an_answer_each(transport: str, mode: str) -> None:
    heard: dict[str, str] = {}
    with anyio.fail_after(LIMIT):
        async with (
            start_endpoint() as place,
            # The ids of both count from the same number.
            open_client_of(place, transport, mode) as first,
            open_client_of(place, transport, mode) as second,
            anyio.create_task_group() as calls,
        ):

            async def call(client: Any, word: str) -> None:
                heard[word] = words(await client.call_tool("meet", {"word": word}))

            calls.start_soon(call, first, "first")
            calls.start_soon(call, second, "second")
    assert heard == {"first": "first", "second": "second"}


@every_way
@requirement("wire.jsonrpc.errors")
async def test_what_is_wrong_is_said_as_an_error(transport: str, mode: str) -> None:
    with anyio.fail_after(LIMIT):
        async with open_client(transport, mode) as client:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("no_such_tool", {})
            assert caught.value.code == mcp_types.INVALID_PARAMS
            request = mcp_types.Request[Any, str](method="no/such", params=mcp_types.RequestParams())
            with pytest.raises(MCPError) as caught:
                await client.session.send_request(request, mcp_types.EmptyResult)
            assert caught.value.code == mcp_types.METHOD_NOT_FOUND
            assert words(await client.call_tool("test_simple_text", {})).startswith("This is")


@pytest.mark.parametrize("transport", ["http", "sse", "ws", "stdio"])
async def test_a_client_that_tries_finds_the_newest_era_that_the_transport_has(transport: str) -> None:
    with anyio.fail_after(LIMIT):
        async with open_client(transport, "auto") as client:
            assert client.protocol_version == (HANDSHAKE if transport == "sse" else MODERN)
            assert words(await client.call_tool("test_simple_text", {})).startswith("This is")


@pytest.mark.parametrize("transport", ["http", "sse", "ws", "stdio"])
@pytest.mark.parametrize("revision", HANDSHAKE_PROTOCOL_VERSIONS)
@requirement("wire.revision.all", "wire.handshake.server", "wire.interop.peers")
async def test_a_handshake_client_gets_the_revision_it_asks_for(
    transport: str, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp.client.session.LATEST_HANDSHAKE_VERSION", revision)
    with anyio.fail_after(LIMIT):
        async with open_client(transport, "legacy") as client:
            assert client.protocol_version == revision
            assert client.server_info is not None and client.server_info.name == "rookery-conformance"
            assert client.server_capabilities.tools is not None
            assert words(await client.call_tool("test_simple_text", {})).startswith("This is")
            assert words(await client.call_tool("test_sampling", {"prompt": "?"})) == "LLM response: Paris"


@requirement("wire.revision.all", "wire.interop.peers")
async def test_one_endpoint_serves_all_five_revisions_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    with anyio.fail_after(LIMIT):
        async with start_endpoint() as place, open_client_of(place, "http", MODERN) as newest:
            for revision in HANDSHAKE_PROTOCOL_VERSIONS:
                monkeypatch.setattr("mcp.client.session.LATEST_HANDSHAKE_VERSION", revision)
                async with open_client_of(place, "http", "legacy") as client:
                    await client.call_tool("test_simple_text", {})
                    await newest.call_tool("test_simple_text", {})
                    found.append(client.protocol_version)
            found.append(newest.protocol_version)
    assert found == list(revisions.ALL)
