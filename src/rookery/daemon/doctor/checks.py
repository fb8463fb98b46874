"""`rookery doctor`: read-only checks, one row each, with a remedy where one is needed."""

import asyncio
import json
import os
import shutil
import socket
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import rookery
from rookery.cli import link, output
from rookery.daemon import layers
from rookery.daemon.doctor_agents import agent_checks
from rookery.daemon.doctor_clients import Ports, app_port, client_checks, workspace_ports
from rookery.daemon.programs import Check, Programs
from rookery.system import places
from rookery.system.lock import FileLock, is_held
from rookery.system.store import newest_version, peek_version
from rookery.system.visible import visible
from rookery.upstreams.ourselves import without_ourselves
from rookery.upstreams.sources import find

_MIN_INOTIFY = 65_536
_LOW_DISK = 1_000_000_000
_SYMBOLS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}


def run_doctor(*, as_json: bool) -> int:
    checks = asyncio.run(all_checks())
    if as_json:
        output.answer(json.dumps({"version": 1, "checks": [asdict(check) for check in checks]}))
    else:
        width = max(len(check.id) for check in checks)
        for check in checks:
            symbol, colour = _SYMBOLS[check.status]
            # What a file says may be in it.
            told = visible(f"{check.summary}  -> {check.remedy}" if check.remedy else check.summary)
            output.answer(f"{output.paint(symbol, colour)} {check.id:<{width}}  {told}")
    return 1 if any(check.status == "failed" for check in checks) else 0


async def all_checks() -> list[Check]:
    """Programs side by side, since each starts a process; the rest are a few looks at files."""
    state = places.state_folder()
    programs = Programs()
    layered = layers.load(places.config_folder(), project=layers.checkout_of(Path.cwd()), environment=os.environ)
    ports = Ports(app_port(), workspace_ports())
    version, env_from = layered.values["agents.version"], layered.values["agents.env_from"]
    git, node, agents, just = await asyncio.gather(
        programs.git(),
        programs.node(),
        agent_checks(programs, state, version, env_from),
        programs.tool("just", "just", needed_for="just tasks", remedy="pip install rust-just"),
    )
    return [
        check_python(),
        git,
        node,
        *agents,
        just,
        check_state(state),
        check_store(state),
        check_daemon(state),
        check_ports(),
        check_disk(state),
        check_inotify(),
        *check_modes(state),
        *check_config(layered),
        *check_servers(ports),
        *client_checks(ports),
    ]


def check_python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", "ok", f"Python {version}, Rookery {rookery.__version__}")


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
    # What a new one was told last still stands in its log.
    return Check("store", "ok", f"schema {version}" if version else "newly made")


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


def check_config(layered: layers.Layered) -> Iterator[Check]:
    for problem in layered.problems:
        yield Check(
            "config", "failed" if problem.fatal else "warning", f"{problem.source}: {problem.message}", problem.remedy
        )
    if not layered.problems:
        there = [str(path) for path in layered.files if path.exists()]
        yield Check("config", "ok", ", ".join(there) or "defaults only")


def check_servers(ports: Ports) -> Iterator[Check]:
    """The files that define MCP servers: what in them is not used as it stands, with file and line."""
    # An entry for Rookery itself is a client's, which has a row of its own.
    found = without_ourselves(find(layers.checkout_of(Path.cwd()), os.environ), ports.known, noted=False)
    for problem in found.problems:
        told = f"{problem.file}:{problem.line}: {problem.message}"
        yield Check("servers", "warning" if problem.note else "failed", told, problem.remedy or "look at that line")
    if not found.problems:
        yield Check("servers", "ok", f"{len(found.servers)} defined" if found.servers else "none defined")
