"""OpenCode and ripgrep on this machine: brought from npm into the state folder, or found on PATH."""

import asyncio
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from rookery.agents import npm
from rookery.agents.alone import alone
from rookery.agents.release import ON_PATH, PINNED, Machine, Release, check_supported, release_for, this_machine
from rookery.agents.versions import Versions
from rookery.system.buffers import Ring
from rookery.system.errors import RookeryError
from rookery.system.files import move_aside, write_atomic
from rookery.system.ids import new_id
from rookery.system.spawn import Spawner

logger = logging.getLogger("rookery.agents")
# 180 MB come over the network.
INSTALL_SECONDS = 1800.0
_MARK = "installed.json"

Progress = Callable[[str], None]


class Installed(msgspec.Struct, frozen=True):
    """Programs that can be run. Without ripgrep OpenCode tries to fetch one from the network when it needs it."""

    opencode: Path
    version: str
    ripgrep: Path | None


class Installer:
    """`environment` is the user's: npm needs their proxy and registry, and PATH is looked through."""

    def __init__(
        self, state: Path, spawner: Spawner, environment: Mapping[str, str], machine: Machine | None = None
    ) -> None:
        self._folder = state / "opencode"
        self._versions = Versions(self._folder / "versions.json", spawner, environment)
        self._spawner = spawner
        self._environment = environment
        self._machine = machine or this_machine()

    async def find(self, version: str = PINNED) -> Installed | None:
        """What is here already, checked; None if it has to be installed first. `version` may be ON_PATH."""
        if version == ON_PATH:
            return await self._on_path()
        release = release_for(version, self._machine)
        root = self._root(release)
        return _of(release, root) if _is_whole(release, root) else None

    async def install(
        self, version: str = PINNED, progress: Progress = lambda _: None, *, again: bool = False
    ) -> Installed:
        """What `find` would give, brought here first if it is not; one process at a time does that.

        With `again` it is brought in any case, and takes the place of what is here when it is whole.
        """
        if (found := await self.find(version)) and (not again or version == ON_PATH):
            return found
        if version == ON_PATH:
            raise RookeryError(
                "agent-unavailable",
                "there is no opencode on PATH",
                f'install it, or set agents.version = "{PINNED}" and run `rookery agent install`',
            )
        release = release_for(version, self._machine)

        def waiting(holder: str) -> None:
            progress(f"waiting for another install: {holder}")

        async with alone(self._folder / "install.lock", f"installing OpenCode {version}", waiting):
            found = None if again else await self.find(version)
            return found or await self._bring(release, progress)

    async def _on_path(self) -> Installed | None:
        search = self._environment.get("PATH", "")
        found, ripgrep = shutil.which("opencode", path=search), shutil.which("rg", path=search)
        if found is None:
            return None
        version = await self._versions.of(Path(found))
        check_supported(version)
        return Installed(Path(found), version, Path(ripgrep) if ripgrep else None)

    async def _bring(self, release: Release, progress: Progress) -> Installed:
        root = self._root(release)
        root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Nobody else is at it, so whatever lies here was left by one that was cut off.
        for left in root.parent.glob(".*.part"):
            await asyncio.to_thread(shutil.rmtree, left, ignore_errors=True)
        part, old = (root.parent / f".{new_id()}.part" for _ in range(2))
        part.mkdir(mode=0o700)
        try:
            names = " and ".join(f"{name}@{version}" for name, version in release.wanted.items())
            progress(f"fetching {names} with npm")
            await self._run_npm(release, part, progress)
            await self._check(release, part)
            write_atomic(part / _MARK, json.dumps(_sizes(release, part)).encode())
            if root.exists():
                move_aside(root, old)
            move_aside(part, root)
        finally:
            for left in (part, old):
                await asyncio.to_thread(shutil.rmtree, left, ignore_errors=True)
        progress(f"OpenCode {release.version} is installed in {root}")
        return _of(release, root)

    async def _run_npm(self, release: Release, part: Path, progress: Progress) -> None:
        command = npm.install_command(npm.find_npm(self._environment.get("PATH", "")), part, release.wanted)
        heard = _Heard(progress)
        child = await self._spawner.start(
            command, name="npm", cwd=part, env=self._environment, stdout=heard, stderr=heard
        )
        try:
            async with asyncio.timeout(INSTALL_SECONDS):
                code = await child.wait()
            await child.drained(1.0)
        except TimeoutError:
            told = f"npm did not end within {INSTALL_SECONDS:g} s"
            raise RookeryError("timeout", told, "check the network and try again") from None
        finally:
            await child.stop()
        if code != 0:
            raise npm.failure(heard.all.text(), release.wanted)

    async def _check(self, release: Release, part: Path) -> None:
        """That what came is whole and runs: a build for another processor or C library does not."""
        for name, size in _sizes(release, part).items():
            if not size:
                raise RookeryError("agent-unavailable", f"npm brought no {name}", "check `npm config get registry`")
        with tempfile.TemporaryDirectory(prefix="rookery-") as home:
            version = await self._versions.ask(release.opencode(part), Path(home))
        if version != release.version:
            told = f"npm brought OpenCode {version[:80]} instead of {release.version}"
            raise RookeryError("agent-unavailable", told, "check `npm config get registry`")

    def _root(self, release: Release) -> Path:
        return self._folder / "releases" / release.folder


class _Heard:
    """What npm says: kept for an error, and told on where it is progress."""

    def __init__(self, progress: Progress) -> None:
        self.all = Ring()
        self._line = b""
        self._progress = progress

    def write(self, data: bytes) -> None:
        self.all.write(data)
        *lines, self._line = (self._line + data)[-10_000:].split(b"\n")
        for line in lines:
            if told := npm.fetched(line.decode("utf-8", "replace")):
                self._progress(told)


def _of(release: Release, root: Path) -> Installed:
    return Installed(release.opencode(root), release.version, release.ripgrep(root))


def _sizes(release: Release, root: Path) -> dict[str, int]:
    programs = (release.opencode(root), release.ripgrep(root))
    return {program.name: program.stat().st_size if program.is_file() else 0 for program in programs}


def _is_whole(release: Release, root: Path) -> bool:
    """Also after a power cut, which may keep the rename and lose what is in the files."""
    try:
        return json.loads((root / _MARK).read_bytes()) == _sizes(release, root)
    except (OSError, ValueError):
        return False
