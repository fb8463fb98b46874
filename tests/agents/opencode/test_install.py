"""OpenCode is installed from npm completely or not at all. npm is real, the registry is on loopback."""

import asyncio
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.agents.opencode.install import Installer, describe_npm_fetch, find_npm
from rookery.agents.opencode.release import PINNED_VERSION, Machine
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from tests.conformance.suite import NODE
from tests.support.npm.registry import Registry, npm_registry
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

HERE = Machine("linux", "x64")
OPENCODE, RIPGREP = "opencode-linux-x64", "@vscode/ripgrep-linux-x64"


def program(says: str) -> str:
    return f"#!/bin/sh\necho {says}\n"


@pytest.fixture
def registry() -> Iterator[Registry]:
    with npm_registry() as found:
        found.publish(OPENCODE, PINNED_VERSION, {"bin/opencode": program(PINNED_VERSION)})
        found.publish(RIPGREP, "1.18.0", {"bin/rg": program("ripgrep")})
        yield found


def installer(state: Path, registry: Registry | None = None, **more: str) -> Installer:
    npm = {"npm_config_registry": registry.url} if registry else {}
    # Without an npm on PATH it is the one from PyPI.
    environment = {"HOME": os.environ["HOME"], "PATH": "/nowhere", **npm, **more}
    return Installer(state, Spawner(new_id()), environment, HERE)


def releases(state: Path) -> list[str]:
    folder = state / "opencode" / "releases"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@requirement("agent.install.npm")
async def test_both_programs_come_into_the_state_folder_and_are_found_there(state: Path, registry: Registry) -> None:
    told: list[str] = []
    assert await installer(state, registry).find() is None
    found = await installer(state, registry).install(progress=told.append)
    assert found.version == PINNED_VERSION
    assert found.opencode.is_relative_to(state)
    assert found.ripgrep is not None
    assert found.ripgrep.is_relative_to(state)
    assert os.access(found.opencode, os.X_OK)
    assert any(line.startswith("fetching") and PINNED_VERSION in line for line in told)
    assert any(line.startswith("fetched package-1.18.33.tgz") for line in told)
    assert told[-1].startswith(f"OpenCode {PINNED_VERSION} is installed")
    asked = len(registry.asked)
    assert await installer(state, registry).install() == found
    assert await installer(state).find() == found
    assert len(registry.asked) == asked


async def test_two_that_install_at_once_fetch_once(state: Path, registry: Registry) -> None:
    told: tuple[list[str], list[str]] = ([], [])
    one, two = await asyncio.gather(*(installer(state, registry).install(progress=each.append) for each in told))
    assert one == two
    assert len(registry.tarballs()) == 2
    # Whichever comes second waits.
    assert ["waiting for another install: installing OpenCode 1.18.33"] in told


async def test_an_install_that_was_cut_off_does_not_count(state: Path, registry: Registry) -> None:
    registry.cut = True
    with pytest.raises(RookeryError):
        await installer(state, registry, npm_config_fetch_retries="0").install()
    assert releases(state) == []
    assert await installer(state, registry).find() is None
    registry.cut = False
    assert (await installer(state, registry).install()).version == PINNED_VERSION


async def test_an_install_that_is_cancelled_leaves_nothing(state: Path, registry: Registry) -> None:
    begun = asyncio.Event()
    work = asyncio.create_task(installer(state, registry).install(progress=lambda _: begun.set()))
    await asyncio.wait_for(begun.wait(), 30)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert releases(state) == []


async def test_what_a_killed_install_left_is_taken_away(state: Path, registry: Registry) -> None:
    left = state / "opencode" / "releases" / ".old.part"
    left.mkdir(parents=True)
    (left / "opencode").write_text("half")
    await installer(state, registry).install()
    assert releases(state) == [f"{OPENCODE}-{PINNED_VERSION}"]


async def test_a_program_that_lost_its_end_in_a_power_cut_is_brought_anew(state: Path, registry: Registry) -> None:
    found = await installer(state, registry).install()
    found.opencode.write_text("")
    assert await installer(state, registry).find() is None
    assert (await installer(state, registry).install()).opencode.read_text() == program(PINNED_VERSION)


async def test_what_is_brought_again_takes_the_place_of_the_old_one_only_when_it_is_whole(
    state: Path, registry: Registry
) -> None:
    found = await installer(state, registry).install()
    assert found.ripgrep is not None
    found.ripgrep.write_text("damaged!")
    registry.publish(OPENCODE, PINNED_VERSION, {"bin/opencode": program("2.0.0")})
    with pytest.raises(RookeryError, match="instead of"):
        await installer(state, registry).install(again=True)
    assert found.opencode.read_text() == program(PINNED_VERSION)
    registry.publish(OPENCODE, PINNED_VERSION, {"bin/opencode": program(PINNED_VERSION)})
    assert await installer(state, registry).install(again=True) == found
    assert found.ripgrep.read_text() == program("ripgrep")
    assert releases(state) == [f"{OPENCODE}-{PINNED_VERSION}"]


async def test_what_is_not_what_the_registry_says_is_refused(state: Path, registry: Registry) -> None:
    registry.wrong = True
    with pytest.raises(RookeryError, match="EINTEGRITY"):
        await installer(state, registry).install()
    assert releases(state) == []


async def test_f07_a_package_with_another_version_inside_is_refused(state: Path, registry: Registry) -> None:
    registry.publish(OPENCODE, PINNED_VERSION, {"bin/opencode": program("2.0.0")})
    with pytest.raises(RookeryError, match=r"npm installed OpenCode 2\.0\.0 instead of 1\.18\.33"):
        await installer(state, registry).install()
    assert releases(state) == []


async def test_a_registry_that_cannot_be_reached_is_named_with_the_remedy(state: Path) -> None:
    with pytest.raises(RookeryError, match="the npm registry cannot be reached") as caught:
        await installer(state, npm_config_registry="http://127.0.0.1:9", npm_config_fetch_retries="0").install()
    assert caught.value.code == "agent-unavailable"
    assert "npm config get registry" in caught.value.remedy
    assert 'agents.version = "path"' in caught.value.remedy


async def test_a_version_that_does_not_exist_is_named(state: Path, registry: Registry) -> None:
    with pytest.raises(RookeryError, match=r"no such package for this machine.*opencode-linux-x64@1\.18\.99"):
        await installer(state, registry).install("1.18.99")


async def test_an_opencode_that_was_brought_here_leaves_nothing_in_the_home_of_its_user(
    state: Path, registry: Registry, tmp_path: Path
) -> None:
    config = str(tmp_path / "config")
    says = f"#!/bin/sh\nmkdir -p $HOME/.cache/opencode ${{XDG_CONFIG_HOME:-$HOME}}/opencode\necho {PINNED_VERSION}\n"
    registry.publish(OPENCODE, PINNED_VERSION, {"bin/opencode": says})
    before = sorted(Path.home().rglob("*opencode*"))
    here = installer(state, registry, PATH="/bin", XDG_CONFIG_HOME=config)
    assert (await here.install()).version == PINNED_VERSION
    assert (sorted(Path.home().rglob("*opencode*")), Path(config).exists()) == (before, False)


@requirement("agent.install.npm")
async def test_those_on_path_are_used_where_the_setting_says_so(state: Path, tmp_path: Path) -> None:
    count = tmp_path / "asked"
    for name, text in {"opencode": f"#!/bin/sh\necho >> {count}\necho 1.18.30\n", "rg": program("rg")}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    here = installer(state, PATH=f"{tmp_path}:/bin")
    for _ in range(2):
        found = await here.install("path")
        assert (found.opencode, found.version, found.ripgrep) == (tmp_path / "opencode", "1.18.30", tmp_path / "rg")
    assert count.read_text() == "\n", "the version was asked for more than once"
    (tmp_path / "opencode").write_text(program("2.1.0"))
    with pytest.raises(RookeryError, match=r"OpenCode 2\.1\.0 is not supported: Rookery works with 1\.18\.18 or later"):
        await here.find("path")


async def test_what_is_no_version_is_not_remembered_as_one(state: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    (tmp_path / "opencode").write_text(f"#!/bin/sh\ncat {said}\n")
    (tmp_path / "opencode").chmod(0o755)
    said.write_text("EROFS: read-only file system, mkdir '/home/me/.local'")
    here = installer(state, PATH=f"{tmp_path}:/bin")
    with pytest.raises(RookeryError, match=r"does not run here: the file system is read-only: /home/me/\.local"):
        await here.find("path")
    said.write_text(PINNED_VERSION)
    found = await here.find("path")
    assert found is not None and found.version == PINNED_VERSION
    # Nor is what an older Rookery has remembered.
    known = state / "opencode" / "versions.json"
    known.write_text(known.read_text().replace(f'"{PINNED_VERSION}"', '"EROFS: read-only file system"'))
    assert await here.find("path") == found


async def test_an_opencode_on_path_makes_nothing_in_the_folders_of_its_user(state: Path, tmp_path: Path) -> None:
    """Not even where it is told of folders in other ways than by HOME."""
    folders = {name: tmp_path / name for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "TMPDIR")}
    makes = " ".join(f"${{{name}:-$HOME}}/opencode" for name in ("HOME", *folders))
    (tmp_path / "opencode").write_text(f"#!/bin/sh\nmkdir -p {makes} || exit\necho {PINNED_VERSION}\n")
    (tmp_path / "opencode").chmod(0o755)
    given = {name: str(path) for name, path in folders.items()}
    before = sorted(Path.home().rglob("*"))
    # A TMPDIR that is not there yet is no reason to fail, since OpenCode would make it.
    assert await installer(state, None, PATH=f"{tmp_path}:/bin", **given).find("path")
    assert (sorted(Path.home().rglob("*")), [*filter(Path.exists, folders.values())]) == (before, [])
    folders["TMPDIR"].mkdir()
    (tmp_path / "opencode").write_text((tmp_path / "opencode").read_text() + "\n")
    assert await installer(state, None, PATH=f"{tmp_path}:/bin", **given).find("path")
    assert list(folders["TMPDIR"].iterdir()) == []


async def test_without_an_opencode_on_path_the_remedy_is_to_install_one(state: Path) -> None:
    with pytest.raises(RookeryError, match="no opencode on PATH") as caught:
        await installer(state).install("path")
    assert "rookery agent install" in caught.value.remedy


async def test_an_opencode_that_does_not_run_here_is_named(state: Path, tmp_path: Path) -> None:
    (tmp_path / "opencode").write_text("#!/bin/sh\necho Illegal instruction >&2\nexit 132\n")
    (tmp_path / "opencode").chmod(0o755)
    with pytest.raises(RookeryError, match="does not run here: Illegal instruction"):
        await installer(state, PATH=f"{tmp_path}:/bin").find("path")


@requirement("agent.install.npm")
def test_the_npm_on_path_comes_first_and_the_one_from_pypi_else(tmp_path: Path) -> None:
    assert find_npm("/nowhere")[0] == str(NODE / "bin" / "node")
    (tmp_path / "npm").write_text(program("npm"))
    (tmp_path / "npm").chmod(0o755)
    assert find_npm(str(tmp_path)) == [str(tmp_path / "npm")]


def test_without_any_npm_the_ways_to_one_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> None: ...

    monkeypatch.setattr(importlib.util, "find_spec", none)
    with pytest.raises(RookeryError, match="there is no npm") as caught:
        find_npm("/nowhere")
    assert "rookery[npm]" in caught.value.remedy


def test_progress_never_tells_where_something_came_from() -> None:
    line = "npm http fetch GET 200 https://me:secret@npm.example/x/-/opencode-linux-x64-1.18.33.tgz 3021ms"
    assert describe_npm_fetch(line) == "fetched opencode-linux-x64-1.18.33.tgz in 3.0 s"
    assert describe_npm_fetch("npm warn something") is None
