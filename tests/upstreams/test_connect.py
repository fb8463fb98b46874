"""What local servers are started with: the environment of the user's own servers, and that of a repository's."""

import json
import os
from typing import Any

import pytest

from rookery.daemon.settings.schema import ServerSettings, Settings
from tests.support.gateway.gateway import Gateway, checkout, start_gateway, view_of, write
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

SCREEN = {"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0", "XAUTHORITY": "/x"}
PROXIES = {"HTTP_PROXY": "http://p", "https_proxy": "http://p", "NO_PROXY": "a", "all_proxy": "http://p"}
OTHERS = {"DATABASE_URL": "postgres:", "AWS_REGION": "r", "OPENAI_API_KEY": "k", "ROOKERY_TOKEN": "rk_secret"}
NEEDS_URL = {"command": ["/bin/sh", "-c", 'set -u; exec echo "$DATABASE_URL"']}


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (SCREEN | PROXIES | OTHERS).items():
        monkeypatch.setenv(name, value)


async def approve_all(gateway: Gateway) -> None:
    for subject in await gateway.service.list_waiting():
        await gateway.approvals.approve(subject, subject.digest)
        await gateway.service.on_approvals_changed(subject.key)


@requirement("servers.env.settings")
@pytest.mark.parametrize(
    ("value", "more"),
    [
        ("", set[str]()),
        ("DATABASE_URL,AWS_*", {"DATABASE_URL", "AWS_REGION"}),
        ("*", OTHERS.keys() - {"ROOKERY_TOKEN"}),
    ],
)
async def test_c18_settings_decide_what_the_users_servers_get(value: str, more: set[str]) -> None:
    settings = Settings(servers=ServerSettings(env=value))
    async with start_gateway(lambda scripted: scripted.servers("one"), settings=settings) as gateway:
        await (await gateway.caller()).tools()
        (server,) = gateway.scripted.of("one")
        given = {name: found for name, found in server.env.items() if name in SCREEN | PROXIES | OTHERS}
        assert given == SCREEN | PROXIES | {name: OTHERS[name] for name in more}


@requirement("servers.env.settings")
async def test_c18_what_a_repository_defines_gets_only_what_its_approval_shows() -> None:
    folder = checkout()
    async with start_gateway(None, folder, settings=Settings(servers=ServerSettings(env="*"))) as gateway:
        named = {"environment": {"REGION": "{env:AWS_REGION}", "PATH": os.environ["PATH"]}}
        servers: dict[str, Any] = {
            "plain": gateway.scripted.server("plain"),
            "named": gateway.scripted.server("named") | named,
        }
        write(servers, folder / ".rookery" / "mcp.json")
        await gateway.hub.refresh()
        await gateway.hub.config_watcher.read_again()
        shown = [json.loads(subject.content)["entry"] for subject in await gateway.service.list_waiting()]
        assert [entry.get("environment", {}).get("REGION") for entry in shown] == [None, "{env:AWS_REGION}"]
        await approve_all(gateway)
        await (await gateway.caller(view_of(folder))).tools()
        for name, expected in (("plain", set[str]()), ("named", {"REGION"})):
            (server,) = gateway.scripted.of(name)
            assert server.env.keys() & {*SCREEN, *PROXIES, *OTHERS, "REGION"} == expected


@requirement("servers.env.settings")
async def test_a_server_that_lacks_a_variable_fails_with_the_setting_that_passes_it_on() -> None:
    folder = checkout()
    settings = Settings(servers=ServerSettings(env="AWS_*"))
    async with start_gateway({"own": NEEDS_URL}, folder, settings=settings) as gateway:
        _, record = await gateway.rest("POST", "/api/mcp/own/connect")
        assert record["status"] == "failed"
        assert (
            "its environment was reduced: DATABASE_URL is set where Rookery was started, but not passed on; "
            "to pass it on: rookery config set servers.env 'AWS_*,DATABASE_URL'"
        ) in record["error"]
        write({"theirs": NEEDS_URL}, folder / ".rookery" / "mcp.json")
        await gateway.hub.config_watcher.read_again()
        await approve_all(gateway)
        _, record = await gateway.rest("POST", f"/api/mcp/theirs/connect?workspace={folder.resolve()}")
        assert record["status"] == "failed"
        assert 'add "environment": {"DATABASE_URL": "{env:DATABASE_URL}"}, and approve it' in record["error"]


@requirement("servers.env.settings")
async def test_a_variable_that_is_set_nowhere_is_named_with_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL")
    async with start_gateway({"own": NEEDS_URL}) as gateway:
        _, record = await gateway.rest("POST", "/api/mcp/own/connect")
        assert "its environment was reduced: DATABASE_URL is not set here, nor where Rookery was started" in str(record)
        assert "name it in the setting servers.env" in record["error"]
