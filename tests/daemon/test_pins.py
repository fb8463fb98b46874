"""Whose pins those of a server are, and which rules of the scanner are switched off."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rookery.daemon.pins import find_owner, read_switched_off
from rookery.guard.pins.records import PinOwner
from rookery.guard.pins.store import SEAL_FILE
from rookery.guard.scan.rules.registry import RULES
from rookery.system.fs import paths
from rookery.upstreams.config.definition import Definition, Source, add_digests
from tests.support.gateway.gateway import Gateway, checkout, start_gateway, view_of
from tests.support.mcp.changing_server import NAME, READ
from tests.support.mcp.scripted_server import ServerScript, tool
from tests.support.requirements import requirement
from tests.support.store import take_migrations_back


def definition(place: Any = "user", line: int = 1, command: str = "notes") -> Definition:
    source = Source("/home/mcp.json", line, "rookery", place)
    made = Definition(name=NAME, kind="local", source=source, command=(command,), written={"command": [command]})
    return add_digests(made)


def test_pins_of_the_users_own_server_hold_whatever_its_command_is(tmp_path: Path) -> None:
    assert find_owner(definition(), tmp_path) == find_owner(definition(command="other"), None) == PinOwner(NAME)


def test_c10_other_servers_of_the_same_name_have_pins_of_their_own(tmp_path: Path) -> None:
    owners = {
        find_owner(definition(), tmp_path),
        find_owner(definition("project"), tmp_path),
        find_owner(definition("project", command="other"), tmp_path),
        find_owner(definition("project"), tmp_path / "other"),
        find_owner(definition(line=0), tmp_path),
        find_owner(definition(line=0, command="other"), tmp_path),
    }
    assert len(owners) == 6
    assert {owner.place for owner in owners} == {"", str(tmp_path), str(tmp_path / "other"), "added"}


@requirement("guard.scan.gate")
def test_every_rule_is_switched_off_by_its_id_if_a_reason_is_given(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    every = dict.fromkeys(RULES.keys() - {"limit"}, "we know why")
    assert read_switched_off(every) == every
    assert "exfiltration of the scanner is switched off: we know why" in caplog.text
    assert read_switched_off({"limit": "no", "unknown": "no", "exfiltration": " "}) == {}
    for rule in ("limit", "unknown", "exfiltration"):
        assert f"guard.rules_off: {'' if rule == 'exfiltration' else 'there is no rule '}{rule}" in caplog.text


@pytest.mark.anyio
@requirement("guard.pin.first", "guard.pin.changed")
async def test_the_server_of_a_repository_is_pinned_when_it_is_listed_after_its_approval() -> None:
    folder = checkout()
    script = ServerScript(tools=[READ])
    async with start_gateway({}, folder) as gateway:
        entry = gateway.scripted.server(NAME, script)
        servers = {NAME: {"command": entry["command"][0], "args": entry["command"][1:]}}
        (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        await gateway.hub.refresh()
        client = await gateway.caller(view_of(folder, NAME))
        await approve(gateway)
        assert await client.tools() == ["read"]
        (pinned,) = await gateway.parts.pins.list_servers()
        assert pinned.place == str(folder.resolve()) and pinned.program
        assert [(pin.definition, pin.by, pin.version) for pin in pinned.pins] == [("read", "first", "1")]
        # What changes is withheld, until the user approves the server again.
        script.tools = [tool("read", description="Read any note.")]
        await reconnect(gateway, folder)
        assert await client.tools() == []
        await approve(gateway)
        await reconnect(gateway, folder)
        assert await client.tools() == ["read"]


@pytest.mark.anyio
async def test_c08_a_store_of_an_earlier_version_is_sealed_at_the_first_start() -> None:
    async with start_gateway({}):
        pass
    store = paths.store_file(paths.state_folder())
    with closing(sqlite3.connect(store)) as db:
        take_migrations_back(db, 10)
    store.with_name(SEAL_FILE).unlink()
    store.with_name("token").write_text("a daemon has run here", encoding="utf-8")
    for _ in range(2):
        async with start_gateway({}) as gateway:
            assert not await gateway.parts.pins.are_lost()


async def approve(gateway: Gateway) -> None:
    """Approve what the repository defines, as the operation does."""
    for subject in await gateway.service.list_repository_servers():
        await gateway.approvals.approve(subject, subject.digest)
        await gateway.service.guard.on_approved(subject)
        await gateway.service.on_approvals_changed(subject.key)


async def reconnect(gateway: Gateway, folder: Path) -> None:
    server = (await gateway.hub.server_set(folder.resolve())).server(NAME)
    await server.disconnect()
    await server.connect()
