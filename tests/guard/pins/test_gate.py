"""What changes after a server was pinned is withheld: through the real gateway, with servers that change."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from rookery.daemon.settings.schema import GuardSettings, Settings
from rookery.gateway.provider import Catalog, CatalogEntry
from rookery.guard.pins.definition import DefinitionKey
from rookery.guard.pins.gate import list_seen
from rookery.guard.pins.records import PinOwner
from rookery.wire.protocol import revisions
from tests.support.gateway.gateway import Gateway
from tests.support.mcp.caller import ERAS, Caller, failure, told, words
from tests.support.mcp.changing_server import NAME, POISONED, READ, WRITE, ChangingServer
from tests.support.mcp.client import LIMIT
from tests.support.mcp.scripted_server import ServerScript, tool
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

OWNER = PinOwner(NAME)
TRANSPORTS = ("stdio", "http")
LATEST = revisions.LATEST_HANDSHAKE
each_way = pytest.mark.parametrize(
    ("transport", "era"), [(transport, era) for transport in TRANSPORTS for era in (LATEST, revisions.LATEST)]
)


async def wait_for_withheld(gateway: Gateway, *names: str) -> Sequence[Any]:
    """Wait until these definitions are withheld, and return all that is withheld of the server."""
    async with asyncio.timeout(LIMIT):
        while True:
            gateway.events.more.clear()
            catalog = (await gateway.server(NAME)).catalog
            if catalog is not None and {one.name for one in catalog.withheld} == set(names):
                return catalog.withheld
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await gateway.events.more.wait()


async def require_withheld(gateway: Gateway, client: Caller) -> None:
    """Require that the poisoned tool is nowhere, and that everything else is as it was."""
    assert await client.tools() == ["hub_list_servers", "notes__write"]
    await require_not_callable(gateway, client)
    found = await client.call("hub_find_tool", {"query": "read a note"})
    assert "notes__read" not in words(found) and "IMPORTANT" not in json.dumps(found)
    record = next(one for one in await gateway.hub.records(None) if one.name == NAME)
    assert (record.tools, record.withheld) == (1, 1)
    (withheld,) = await wait_for_withheld(gateway, "read")
    assert (withheld.kind, withheld.reason) == ("tool", "changed")
    # What a model may read about the server quotes nothing of it.
    assert "IMPORTANT" not in json.dumps(await client.call("hub_list_servers"))
    assert told(await client.call("notes__write"))["tool"] == "write"


async def require_not_callable(gateway: Gateway, client: Caller) -> None:
    refused = await client.call("notes__read")
    assert failure(refused) == "definition-withheld"
    assert f"rookery guard diff {NAME}" in words(refused)
    if gateway.scripted.alive(NAME):
        assert {call["params"]["name"] for call in gateway.scripted.alive(NAME)[-1].all("tools/call")[3:]} <= {"write"}


@requirement("guard.pin.session", "guard.pin.changed")
@each_way
@pytest.mark.parametrize("client_era", ERAS)
async def test_c06_a_tool_that_changes_in_a_session_is_withheld(transport: str, era: str, client_era: str) -> None:
    server = ChangingServer(transport, era)
    async with server.start() as gateway:
        client = await gateway.caller(revision=client_era)
        assert await client.tools() == ["hub_list_servers", "notes__read", "notes__write"]
        # The third call is the first over the fast path.
        for _ in range(3):
            assert told(await client.call("notes__read"))["tool"] == "read"
        server.play.tools = [POISONED, WRITE]
        await server.announce(gateway)
        await wait_for_withheld(gateway, "read")
        await require_withheld(gateway, client)
        (event,) = gateway.events.of("guard.withheld")
        assert event["server"] == NAME
        assert event["definitions"] == [{"kind": "tool", "name": "read", "reason": "changed"}]


@requirement("guard.pin.session", "guard.pin.changed")
@each_way
async def test_c06_a_tool_that_changes_on_a_reconnect_is_withheld(transport: str, era: str) -> None:
    server = ChangingServer(transport, era)
    async with server.start() as gateway:
        client = await gateway.caller()
        assert told(await client.call("notes__read"))["tool"] == "read"
        server.play.tools = [POISONED, WRITE]
        await server.reconnect(gateway)
        await require_withheld(gateway, client)
        # It reverts: what was pinned is served again, and nothing waits any more.
        server.play.tools = [READ, WRITE]
        await server.reconnect(gateway)
        assert await client.tools() == ["hub_list_servers", "notes__read", "notes__write"]
        pins = await gateway.parts.pins.find(OWNER)
        assert pins is not None and pins.waiting == {}


@requirement("guard.pin.session", "guard.pin.changed")
@each_way
async def test_c05_a_tool_that_changes_while_rookery_is_stopped_is_withheld(transport: str, era: str) -> None:
    server = ChangingServer(transport, era)
    async with server.start() as gateway:
        client = await gateway.caller()
        assert told(await client.call("notes__read"))["tool"] == "read"
    server.play.tools = [POISONED, WRITE]
    for _ in range(2):
        async with server.start() as gateway:
            client = await gateway.caller()
            # Also after the server is connected, and from its stored list.
            await (await gateway.server(NAME)).connect()
            await require_withheld(gateway, client)
            pins = await gateway.parts.pins.list_servers()
            assert [(pin.definition, pin.state, pin.by) for pin in pins[0].pins if pin.definition == "read"] == [
                ("read", "pinned", "first"),
                ("read", "waiting", ""),
            ]


@requirement("guard.pin.changed")
async def test_c05_a_stored_list_is_served_as_far_as_it_is_pinned_before_the_server_runs() -> None:
    server = ChangingServer("stdio", LATEST)
    async with server.start() as gateway:
        await (await gateway.caller()).tools()
        server.play.tools = [POISONED, WRITE]
        await server.reconnect(gateway)
        await wait_for_withheld(gateway, "read")
    server.play.held = {"tools/list"}
    async with server.start() as gateway:
        client = await gateway.caller()
        assert await client.tools() == ["hub_list_servers", "notes__write"]


@requirement("guard.pin.session")
async def test_c06_new_definitions_of_every_kind_are_withheld_unless_the_server_is_trusted() -> None:
    server = ChangingServer("stdio", LATEST)
    server.play.prompts = [{"name": "ask"}]
    server.play.templates = [{"name": "note", "uriTemplate": "note://{id}"}]
    server.play.resources = [{"name": "one", "uri": "skill://one"}]
    server.play.instructions = "Notes are short."
    async with server.start() as gateway:
        client = await gateway.caller()
        await client.tools()
        server.play.tools = [READ, WRITE, tool("delete", description="Delete a note.")]
        server.play.prompts = [{"name": "ask"}, {"name": "tell"}]
        server.play.templates = [*server.play.templates, {"name": "pad", "uriTemplate": "pad://{id}"}]
        server.play.resources = [*server.play.resources, {"name": "two", "uri": "skill://two"}]
        server.play.instructions = "Notes are long."
        await server.reconnect(gateway)
        record = await wait_for_withheld(gateway, "delete", "tell", "pad://{id}", "skill://two", "")
        assert {(one.kind, one.reason) for one in record} == {
            *((kind, "new") for kind in ("tool", "prompt", "template", "skill")),
            ("instructions", "changed"),
        }
        for kind, old, new in (
            ("prompts", "ask", "tell"),
            ("resourceTemplates", "note", "pad"),
            ("resources", "one", "two"),
        ):
            uris = [one.get("uri", one.get("uriTemplate", one["name"])) for one in await client.listed(kind)]
            assert any(old in uri for uri in uris) and not any(new in uri for uri in uris), (kind, uris)
        assert "Notes are" not in json.dumps(await client.open())
        for method, params in (
            ("prompts/get", {"name": "notes__tell"}),
            ("resources/read", {"uri": "notes+pad://1"}),
            ("resources/read", {"uri": "notes+skill://two"}),
            ("completion/complete", {"ref": {"type": "ref/resource", "uri": "pad://{id}"}, "argument": {}}),
        ):
            refused = await client.ask(method, params)
            assert f"rookery guard diff {NAME}" in refused["error"]["message"], (method, refused)
        # A server that is trusted to add may add, and still not change.
        await gateway.parts.pins.trust(OWNER, additions=True)
        await gateway.service.review_again(NAME)
        assert {one.name for one in await wait_for_withheld(gateway, "")} == {""}
        assert "notes__delete" in await client.tools()


@requirement("guard.pin.first")
async def test_the_first_listing_pins_every_definition_with_time_and_version() -> None:
    server = ChangingServer("stdio", LATEST)
    server.play.prompts = [{"name": "ask"}]
    server.play.templates = [{"name": "note", "uriTemplate": "note://{id}"}]
    server.play.resources = [{"name": "one", "uri": "skill://one"}, {"name": "plain", "uri": "file:///plain"}]
    server.play.instructions = "Notes are short."
    async with server.start() as gateway:
        await (await gateway.caller()).tools()
        (pinned,) = await gateway.parts.pins.list_servers()
        assert pinned.owner == OWNER and pinned.at > 0
        assert {pin.key for pin in pinned.pins} == {
            DefinitionKey("tool", "read"),
            DefinitionKey("tool", "write"),
            DefinitionKey("prompt", "ask"),
            DefinitionKey("template", "note://{id}"),
            DefinitionKey("instructions", ""),
            DefinitionKey("skill", "skill://one"),
        }
        for pin in pinned.pins:
            assert (pin.state, pin.by, pin.version) == ("pinned", "first", "1")
            assert pin.digest.startswith("sha256:") and pin.at > 0


@requirement("guard.scan.gate")
async def test_c01_a_severe_finding_withholds_a_definition_at_first_sight() -> None:
    server = ChangingServer("stdio", LATEST)
    server.play.tools = [POISONED, WRITE]
    async with server.start() as gateway:
        client = await gateway.caller()
        assert await client.tools() == ["hub_list_servers", "notes__write"]
        (withheld,) = await wait_for_withheld(gateway, "read")
        assert withheld.reason == "severe"
        await require_not_callable(gateway, client)


def settings(**guard: Any) -> Settings:
    return Settings(guard=GuardSettings(**guard))


@requirement("guard.scan.gate")
async def test_c04_a_definition_beyond_the_limits_of_the_scanner_is_withheld_and_says_so() -> None:
    server = ChangingServer("stdio", LATEST)
    junk = {f"x{number}": number for number in range(25_001)}
    server.play.tools = [tool("read", _meta={"junk": junk}), WRITE]
    async with server.start() as gateway:
        client = await gateway.caller()
        assert await client.tools() == ["hub_list_servers", "notes__write"]
        record = next(one for one in await gateway.hub.records(None) if one.name == NAME)
        assert record.findings and "limit (severe) in tool 'read'" in (await gateway.server(NAME)).list_findings()


@pytest.mark.parametrize("pins", ["on", "off"])
@pytest.mark.parametrize("scan", ["withhold", "report", "off"])
async def test_the_settings_decide_what_is_withheld(pins: str, scan: str) -> None:
    server = ChangingServer("stdio", LATEST)
    server.play.tools = [tool("odd", description=POISONED["description"]), READ]
    async with server.start(settings(pins=pins, scan=scan)) as gateway:
        client = await gateway.caller()
        odd = [] if scan == "withhold" else ["notes__odd"]
        assert await client.tools() == ["hub_list_servers", *odd, "notes__read"]
        server.play.tools = [server.play.tools[0], tool("read", description="Read notes.")]
        await server.reconnect(gateway)
        assert await client.tools() == ["hub_list_servers", *odd, *([] if pins == "on" else ["notes__read"])]


@requirement("guard.scan.gate")
async def test_a_rule_that_is_switched_off_with_a_reason_withholds_nothing() -> None:
    server = ChangingServer("stdio", LATEST)
    server.play.tools = [tool("read", description="Read a note.\u200b\u200b\u200b")]
    async with server.start() as gateway:
        assert await (await gateway.caller()).tools() == ["hub_list_servers"]
    off = settings(rules_off={"hidden-characters": "an old editor leaves them"})
    async with server.start(off) as gateway:
        client = await gateway.caller()
        await (await gateway.server(NAME)).connect()
        assert await client.tools() == ["hub_list_servers", "notes__read"]


async def test_c07_what_is_scanned_is_what_is_served() -> None:
    server = ChangingServer("stdio", LATEST)
    answers = iter([[READ, WRITE], [POISONED, WRITE], [POISONED, WRITE]])
    server.play.replies["tools/list"] = lambda params: {"tools": next(answers)}
    async with server.start() as gateway:
        client = await gateway.caller()
        for _ in range(3):
            assert "IMPORTANT" not in json.dumps(await client.listed("tools"))
        (process,) = gateway.scripted.of(NAME)
        assert len(process.all("tools/list")) == 1


@requirement("guard.scan.budget")
async def test_unchanged_definitions_are_scanned_once_also_after_a_restart() -> None:
    server = ChangingServer("stdio", LATEST)
    async with server.start() as gateway:
        client = await gateway.caller()
        await client.tools()
        reports = gateway.service.guard.reports
        assert reports.scanned == 2
        server.play.tools = [READ, WRITE, tool("delete", description="Delete a note.")]
        await server.reconnect(gateway)
        assert reports.scanned == 3
        await server.reconnect(gateway)
        assert reports.scanned == 3
    async with server.start() as gateway:
        await (await gateway.server(NAME)).connect()
        assert gateway.service.guard.reports.scanned == 0


async def test_c23_a_server_that_is_added_while_rookery_runs_has_pins_of_its_own() -> None:
    server = ChangingServer("stdio", LATEST)
    async with server.start() as gateway:
        await (await gateway.caller()).tools()
        other = gateway.scripted.server(NAME, None, "other")
        gateway.scripted.plays[NAME] = ServerScript(tools=[POISONED])
        await gateway.hub.add(None, None, NAME, other)
        owners = [pinned.owner for pinned in await gateway.parts.pins.list_servers()]
        assert [owner.place for owner in owners] == ["", "added"]


def test_only_the_whole_path_of_a_folder_is_replaced() -> None:
    raw = b'{"name":"read","description":"Reads /a/notes in /a, and not /api, /x/a or /a-b."}'
    (seen,) = list_seen(Catalog(tools=[CatalogEntry("read", Raw(raw))]), Path("/a"))
    assert b"Reads {folder}/notes in {folder}, and not /api, /x/a or /a-b." in seen.content
    assert list_seen(Catalog(tools=[CatalogEntry("read", Raw(raw))]), Path("/"))[0].content == raw


async def test_pins_hold_in_every_workspace_though_a_definition_names_its_folder() -> None:
    server = ChangingServer("stdio", LATEST)
    make: Callable[[str], dict[str, Any]] = lambda folder: tool("read", description=f"Reads in {folder}.")  # noqa: E731
    async with server.start() as gateway:
        server.play.tools = [make(str((await gateway.server(NAME)).directory))]
        await (await gateway.caller()).tools()
        (pinned,) = await gateway.parts.pins.list_servers()
        assert b"Reads in {folder}." in pinned.pins[0].content
