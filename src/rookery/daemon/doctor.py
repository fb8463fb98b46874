"""`rookery doctor`: read-only checks, one row each, with a remedy where one is needed."""

import asyncio
import json
import os
import re
import shutil
import socket
import stat
import sys
from collections.abc import Awaitable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import rookery
from rookery.cli import link, output
from rookery.daemon import layers
from rookery.system import environment, places
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.lock import FileLock, is_held
from rookery.system.spawn import Spawner
from rookery.system.store import newest_version, peek_version

Verdict = Literal["ok", "warning", "failed"]

_MIN_GIT = (2, 36)
_MIN_NODE = (22, 0)
_MIN_INOTIFY = 65_536
_LOW_DISK = 1_000_000_000
_SYMBOLS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}


@dataclass(frozen=True)
class Check:
    id: str
    status: Verdict
    summary: str
    remedy: str = ""


def run_doctor(*, as_json: bool) -> int:
    checks = asyncio.run(all_checks())
    if as_json:
        output.answer(json.dumps({"version": 1, "checks": [asdict(check) for check in checks]}))
    else:
        width = max(len(check.id) for check in checks)
        for check in checks:
            symbol, colour = _SYMBOLS[check.status]
            remedy = f"  -> {check.remedy}" if check.remedy else ""
            output.answer(f"{output.paint(symbol, colour)} {check.id:<{width}}  {check.summary}{remedy}")
    return 1 if any(check.status == "failed" for check in checks) else 0


async def all_checks() -> list[Check]:
    """Programs side by side, since each starts a process; the rest are a few looks at files."""
    state = places.state_folder()
    programs = Programs()
    waiting: list[Awaitable[Check]] = [
        programs.git(),
        programs.node(),
        programs.tool("npm", "npm", needed_for="OpenCode is installed with it"),
        programs.tool("opencode", "opencode", needed_for="agents", remedy="npm install -g opencode-ai"),
        programs.tool("ripgrep", "rg", needed_for="searching in agents", remedy="install ripgrep"),
        programs.tool("just", "just", needed_for="just tasks", remedy="pip install rust-just"),
    ]
    found = list(await asyncio.gather(*waiting))
    return [
        check_python(),
        *found,
        check_state(state),
        check_store(state),
        check_daemon(state),
        check_ports(),
        check_disk(state),
        check_inotify(),
        *check_modes(state),
        *check_config(),
    ]


def check_python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", "ok", f"Python {version}, Rookery {rookery.__version__}")


class Programs:
    """What other programs say of their version."""

    def __init__(self) -> None:
        self._spawner = Spawner(new_id())

    async def version(self, program: str) -> tuple[str, tuple[int, ...]] | None:
        """The first line of `--version` and the numbers in it; None if the program is not there."""
        path = shutil.which(program)
        if path is None:
            return None
        try:
            ran = await self._spawner.run(
                [path, "--version"], name=program, cwd=Path("/"), env=environment.allowed(), timeout=20
            )
        except RookeryError as error:
            return error.message, ()
        line = (ran.stdout or ran.stderr).decode("utf-8", "replace").strip().partition("\n")[0]
        numbers = re.search(r"\d+(\.\d+)+", line)
        return line, tuple(int(part) for part in numbers[0].split(".")) if numbers else ()

    async def git(self) -> Check:
        found = await self.version("git")
        if found is None:
            return Check("git", "failed", "git was not found", "install git")
        if found[1] < _MIN_GIT:
            return Check("git", "failed", f"{found[0]} is too old", f"install git {_MIN_GIT[0]}.{_MIN_GIT[1]} or later")
        return Check("git", "ok", found[0])

    async def node(self) -> Check:
        found = await self.version("node")
        if found is None:
            return Check(
                "node", "warning", "node was not found; many MCP servers need it", "install Node.js 22 or later"
            )
        if found[1] < _MIN_NODE:
            return Check("node", "warning", f"node {found[0]} is old", "install Node.js 22 or later")
        return Check("node", "ok", f"node {found[0]}")

    async def tool(self, id_: str, program: str, *, needed_for: str, remedy: str = "") -> Check:
        found = await self.version(program)
        if found is None:
            return Check(id_, "warning", f"{program} was not found ({needed_for})", remedy or f"install {program}")
        if not found[1]:
            return Check(id_, "warning", f"{program} does not tell its version: {found[0]}", remedy)
        return Check(id_, "ok", found[0])


def check_daemon(state: Path) -> Check:
    running = link.connect()
    if running is None:
        if is_held(places.lock_file(state)):
            holder = FileLock(places.lock_file(state)).holder()
            return Check(
                "daemon", "failed", f"one runs ({holder}) and cannot be reached", "rookery down, then rookery up -d"
            )
        stale = places.runtime_file(state).exists()
        told = (
            "not running (daemon.json is of one that was killed; the next start cleans up)" if stale else "not running"
        )
        return Check("daemon", "ok", told, "" if not stale else "rookery up -d")
    try:
        health = json.loads(link.exchange(running, "GET", "/api/health"))
    except Exception as error:
        return Check("daemon", "failed", f"the daemon does not answer: {error}", "rookery down, then rookery up -d")
    known = link.runtime() or {}
    if health.get("instance") != known.get("instance"):
        return Check("daemon", "failed", "daemon.json names another instance than the one that answers", "rookery down")
    return Check("daemon", "ok", f"pid {known['pid']} at {known['url']}, socket {known['socket']}")


def check_ports() -> Check:
    """That 127.0.0.1 can be bound at all; containers and firewalls have been seen to forbid it."""
    try:
        with socket.socket() as made:
            made.bind(("127.0.0.1", 0))
    except OSError as error:
        return Check("ports", "failed", f"127.0.0.1 cannot be bound: {error.strerror}", "check the loopback interface")
    return Check("ports", "ok", "ports of 127.0.0.1 can be bound")


def check_disk(state: Path) -> Check:
    there = next(folder for folder in (state, *state.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    told = f"{free / 1e9:.1f} GB free at {there}"
    if free < _LOW_DISK:
        return Check("disk", "warning", told, "free some space, or move the state folder with ROOKERY_HOME")
    return Check("disk", "ok", told)


def check_state(state: Path) -> Check:
    """Whether the folder is there and can be written, or can be made."""
    there = next(folder for folder in (state, *state.parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Check("state", "failed", f"{there} cannot be written to", "set ROOKERY_HOME to a folder that can")
    return Check("state", "ok", str(state) if there == state else f"{state} will be made on the first start")


def check_store(state: Path) -> Check:
    """Whether this Rookery can open the store; only looked at, never opened."""
    try:
        version = peek_version(places.store_file(state))
    except OSError as error:
        return Check("store", "failed", f"cannot be read: {error.strerror}", f"see {places.store_file(state)}")
    if version is None:
        return Check("store", "ok", "none yet")
    if version > newest_version():
        return Check("store", "failed", f"its schema {version} is newer than this Rookery", "update Rookery")
    return Check("store", "ok", f"schema {version}")


def check_inotify() -> Check:
    try:
        watches = int(Path("/proc/sys/fs/inotify/max_user_watches").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return Check("inotify", "ok", "not used on this system")
    if watches < _MIN_INOTIFY:
        return Check("inotify", "warning", f"only {watches} watches", "sysctl fs.inotify.max_user_watches=524288")
    return Check("inotify", "ok", f"{watches} watches")


def check_modes(state: Path) -> Iterator[Check]:
    """Secrets that others could read, and a state folder that others could write."""
    secrets = [places.token_file(state), places.runtime_file(state), places.store_file(state), places.log_file(state)]
    for path in [state, *secrets]:
        try:
            found = path.stat() if path == state else path.lstat()
        except OSError:
            continue
        if found.st_uid != os.getuid():
            yield Check(
                "modes", "failed", f"{path} belongs to uid {found.st_uid}", "set ROOKERY_HOME to your own folder"
            )
        elif stat.S_ISLNK(found.st_mode) and path != state:
            yield Check("modes", "failed", f"{path} is a symbolic link", f"rm {path}")
        elif found.st_mode & 0o077:
            told = f"{path} is open to others (mode {stat.S_IMODE(found.st_mode):04o})"
            # A token that others could read may be known to them; a new one is made on the next start.
            remedy = f"rm {path}" if path == places.token_file(state) else f"chmod go= {path}"
            yield Check("modes", "failed", told, remedy)
        else:
            continue
        return
    yield Check("modes", "ok", "secret files are yours alone")


def check_config() -> Iterator[Check]:
    layered = layers.load(places.config_folder(), project=layers.checkout_of(Path.cwd()), environment=os.environ)
    for problem in layered.problems:
        yield Check(
            "config", "failed" if problem.fatal else "warning", f"{problem.source}: {problem.message}", problem.remedy
        )
    if not layered.problems:
        there = [str(path) for path in layered.files if path.exists()]
        yield Check("config", "ok", ", ".join(there) or "defaults only")
