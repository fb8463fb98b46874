"""`rookery agent install` and `login`: the npm is real, the registry is on loopback."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.agents.opencode.release import PINNED_VERSION, detect_machine, find_release
from tests.support.cli.user import at_a_terminal
from tests.support.daemon.process import Daemon, rookery, up
from tests.support.npm.registry import Registry, npm_registry
from tests.support.requirements import requirement

pytestmark = requirement("agent.install.npm", "agent.cli.verbs")

# Tells its version, and what it was called with otherwise.
PROGRAM = '#!/bin/sh\n[ "$1" = --version ] && echo {} || echo called with "$@"\n'


@pytest.fixture
def registry() -> Iterator[Registry]:
    with npm_registry() as found:
        release = find_release(PINNED_VERSION, detect_machine())
        programs = (("bin/opencode", PINNED_VERSION), ("bin/rg", "ripgrep"))
        for (package, version), (path, says) in zip(release.packages.items(), programs, strict=True):
            found.publish(package, version, {path: PROGRAM.format(says)})
        yield found


@pytest.fixture
def fed(registry: Registry) -> Iterator[Daemon]:
    """A daemon whose npm asks that registry."""
    running = up(env={"npm_config_registry": registry.url})
    yield running
    assert rookery("down").returncode == 0


def test_it_is_brought_once_with_progress_and_anew_only_if_that_is_said(fed: Daemon, registry: Registry) -> None:
    done = rookery("agent", "install")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"OpenCode {PINNED_VERSION} at {fed.state}/opencode/releases/")
    assert f"@{PINNED_VERSION}" in done.stderr and "with npm" in done.stderr and "fetched " in done.stderr
    assert len(registry.tarballs()) == 2

    again = rookery("agent", "install", "--json")
    assert again.stderr == "" and len(registry.tarballs()) == 2
    told = json.loads(again.stdout)
    assert told["version"] == PINNED_VERSION
    assert os.access(told["opencode"], os.X_OK) and os.access(told["ripgrep"], os.X_OK)
    before = Path(told["opencode"]).stat().st_ino

    forced = rookery("agent", "install", "--force")
    assert forced.stdout == done.stdout and Path(told["opencode"]).stat().st_ino != before
    # npm has a cache of its own; that it was asked is seen by what it says.
    assert "with npm" in forced.stderr
    assert [path.name for path in Path(told["opencode"]).parents[4].iterdir() if ".part" in path.name] == []

    with at_a_terminal("agent", "login", "acme") as person:
        assert person.ends() == 0
        assert "called with auth login --provider acme" in person.text
        assert "rookery agent restart" in person.text
    assert rookery("agent", "login").returncode == 2


def test_what_keeps_it_from_coming_is_said_with_a_remedy(fed: Daemon, registry: Registry) -> None:
    registry.packages.clear()
    done = rookery("agent", "install")
    assert done.returncode == 1 and done.stdout == ""
    assert "the npm registry has no such package" in done.stderr and "agents.version" in done.stderr
    told = json.loads(rookery("agent", "install", "--json").stderr)
    assert told["error"]["code"] == "agent-unavailable"


def test_with_the_ones_on_path_nothing_is_brought(registry: Registry, tmp_path: Path) -> None:
    own = tmp_path / "opencode"
    own.write_text(PROGRAM.format(PINNED_VERSION))
    own.chmod(0o755)
    env = {"ROOKERY_AGENTS_VERSION": "path", "npm_config_registry": registry.url}
    up(env=env | {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    try:
        done = rookery("agent", "install", "--force")
        assert done.stdout == f"OpenCode {PINNED_VERSION} at {own}\n"
        assert registry.asked == []
    finally:
        assert rookery("down").returncode == 0
