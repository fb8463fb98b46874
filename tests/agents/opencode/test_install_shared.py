"""OpenCode is installed when it is first needed. npm is real, the registry is on loopback."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from rookery.agents.opencode.install import SharedInstaller
from rookery.agents.opencode.release import PINNED_VERSION, RIPGREP_PACKAGE_VERSION, detect_machine, find_release
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from tests.support.gateway.gateway import Events
from tests.support.npm.registry import Registry, npm_registry
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


def publish(registry: Registry) -> None:
    release = find_release(PINNED_VERSION, detect_machine())
    registry.publish(release.opencode_package, PINNED_VERSION, {"bin/opencode": f"#!/bin/sh\necho {PINNED_VERSION}\n"})
    registry.publish(release.ripgrep_package, RIPGREP_PACKAGE_VERSION, {"bin/rg": "#!/bin/sh\necho ripgrep\n"})


def environment(registry: Registry) -> Mapping[str, str]:
    return {"HOME": os.environ["HOME"], "PATH": "/nowhere", "npm_config_registry": registry.url}


@requirement("agent.install.npm")
async def test_all_who_need_it_wait_for_one_install_and_hear_how_far_it_is(state: Path) -> None:
    events = Events()
    installations = SharedInstaller(state, Spawner(new_id()), events, PINNED_VERSION)
    heard: list[str] = []
    with npm_registry() as registry:
        publish(registry)
        first = asyncio.ensure_future(installations.get(environment(registry)))
        others = [asyncio.ensure_future(installations.get(environment(registry), heard.append)) for _ in range(2)]
        # Whoever asked first need not stay for the others to get it.
        async with asyncio.timeout(60):
            await events.more.wait()
        first.cancel()
        found = await asyncio.gather(*others)
        assert found[0] == found[1]
        assert len(registry.tarballs()) == 2
    told = events.of("agent.installing")
    assert told[0]["text"].startswith("fetching opencode-") and not told[0]["done"]
    assert (told[-1]["done"], told[-1]["error"], told[-1]["version"]) == (True, None, PINNED_VERSION)
    assert f"OpenCode is being installed: {told[-2]['text']}" in heard
    assert await installations.get({"PATH": "/nowhere"}) == found[0]
    await installations.close()


async def test_an_install_that_fails_is_told_to_all_and_tried_again_by_the_next(state: Path) -> None:
    events = Events()
    installations = SharedInstaller(state, Spawner(new_id()), events, PINNED_VERSION)
    with npm_registry() as registry:
        both = [installations.get(environment(registry)) for _ in range(2)]
        for outcome in await asyncio.gather(*both, return_exceptions=True):
            assert isinstance(outcome, RookeryError) and outcome.code == "agent-unavailable"
        (told,) = [one for one in events.of("agent.installing") if one["done"]]
        assert told["error"]["code"] == "agent-unavailable" and told["error"]["remedy"]
        publish(registry)
        assert (await installations.get(environment(registry))).version == PINNED_VERSION
    await installations.close()
