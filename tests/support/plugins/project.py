"""A project with plugins in it, with the daemon's own parts in the test process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rookery.daemon.settings.schema import Settings
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.mcp.caller import told
from tests.support.mcp.client import LIMIT
from tests.support.workspaces.service import make_repository

HEAD = "from rookery.plugins import Plugin\nplugin = Plugin('{name}', version='{version}')\n"
STATE = "@plugin.state\ndef state(house):\n    return {{'version': '{version}', 'scope': str(house.scope)}}\n"


def source(name: str = "notify", version: str = "1.0", more: str = "") -> str:
    """Return a plugin that records that its code ran."""
    ran = f"import pathlib\npathlib.Path.home().joinpath('ran-{name}-{version}').touch()\n"
    return HEAD.format(name=name, version=version) + STATE.format(version=version) + ran + more


def ran() -> list[str]:
    return sorted(one.name.removeprefix("ran-") for one in Path.home().glob("ran-*"))


def in_plugins(name: str) -> str:
    return f".rookery/plugins/{name}"


@asynccontextmanager
async def start_project(
    files: dict[str, str], servers: Any = None, settings: Settings | None = None
) -> AsyncGenerator[tuple[Gateway, Path]]:
    """Start a gateway with a project whose approved plugins run."""
    app = make_repository(Path.home() / "src" / "app", {"README.md": "an app\n", **files})
    async with start_gateway(servers, app, settings=settings) as gateway:
        service = gateway.parts.plugins
        await service.start()
        try:
            await service.wait_until_ready()
            yield gateway, app
        finally:
            await service.stop()


async def listed(gateway: Gateway) -> dict[str, dict[str, Any]]:
    """Return the plugins, and check that MCP and REST list the same."""
    caller = await gateway.caller()
    found = told(await caller.call("list_plugins"))
    assert (await gateway.rest("GET", "/api/plugins"))[1] == found
    return {f"{one['name']} {one['status']}": one for one in found}


async def approve(gateway: Gateway, name: str) -> None:
    """Approve as the guard does after the user's consent."""
    found = [one for one in await gateway.parts.plugin_files.list_subjects() if one.name == name]
    await gateway.approvals.approve(found[0], found[0].digest)
    await gateway.parts._on_decision(found[0].key)


async def until_only(gateway: Gateway, *wanted: str) -> None:
    """Wait until only these are listed."""
    async with asyncio.timeout(LIMIT):
        while True:
            gateway.events.more.clear()
            if {*await listed(gateway)} == {*wanted}:
                return
            await gateway.events.more.wait()
