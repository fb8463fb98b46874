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
from typing import Any

import rookery
from rookery.cli import output
from rookery.cli.commands.status import describe_crash, describe_notify_failure
from rookery.daemon.doctor.agents import agent_checks
from rookery.daemon.doctor.clients import ClientPorts, app_port, client_checks, workspace_ports
from rookery.daemon.doctor.programs import Check, ProgramChecks
from rookery.daemon.settings import layers
from rookery.daemon.settings.schema import LOOPBACK_WARNING
from rookery.daemon_client import connection
from rookery.system.causes import find_write_problem
from rookery.system.confinement.kernel import find_support
from rookery.system.confinement.policy import ConfinementPolicy
from rookery.system.confinement.rules import list_missing
from rookery.system.fs import paths
from rookery.system.fs.lock import FileLock, is_held
from rookery.system.store import newest_version, peek_version
from rookery.system.text import escape_invisible
from rookery.upstreams.config.sources import exclude_self, load_config

_MIN_INOTIFY = 65_536
_LOW_DISK = 1_000_000_000
_SYMBOLS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}


def run_doctor(*, as_json: bool) -> int:
    """Print all checks, and return exit code 1 if any has failed."""
    checks = asyncio.run(all_checks())
    if as_json:
        output.write(json.dumps({"version": 1, "checks": [asdict(check) for check in checks]}))
    else:
        width = max(len(check.id) for check in checks)
        for check in checks:
            symbol, colour = _SYMBOLS[check.status]
            # The text may contain untrusted content of a file.
            text = escape_invisible(f"{check.summary}  -> {check.remedy}" if check.remedy else check.summary)
            line = output.format_labelled(f"{symbol} {check.id:<{width}}  ", text)
            output.write(line.replace(symbol, output.paint(symbol, colour), 1))
    return 1 if any(check.status == "failed" for check in checks) else 0


async def all_checks() -> list[Check]:
    """Run all checks. Programs are checked concurrently, since each starts a process; the rest only read files."""
    state = paths.state_folder()
    programs = ProgramChecks()
    layered = layers.load_layers(
        paths.config_folder(), project=layers.find_checkout(Path.cwd()), environment=os.environ
    )
    ports = ClientPorts(app_port(), workspace_ports())
    version = layered.values["agents.version"]
    env_from = layered.values["agents.env_from"]
    git, git_user, node, agents, just = await asyncio.gather(
        programs.git(),
        programs.git_user(Path.cwd()),
        programs.node(),
        agent_checks(programs, state, version, env_from),
        programs.tool("just", "just", needed_for="just tasks", remedy="pip install rust-just"),
    )
    return [
        check_python(),
        git,
        git_user,
        node,
        *agents,
        just,
        check_state(state),
        check_store(state),
        check_daemon(state),
        *check_tasks(),
        *check_notify(layered),
        *check_audit(),
        check_ports(),
        check_disk(state),
        check_inotify(),
        check_sandbox(layered),
        *check_modes(state),
        *check_config(layered),
        check_auth(layered),
        *check_servers(ports),
        *client_checks(ports),
    ]


def check_python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", "ok", f"Python {version}, Rookery {rookery.__version__}")


def check_daemon(state: Path) -> Check:
    running = connection.connect()
    if running is None:
        if is_held(paths.lock_file(state)):
            holder = FileLock(paths.lock_file(state)).read_note()
            return Check(
                "daemon",
                "failed",
                f"a daemon is running ({holder}) but cannot be reached",
                "rookery down, then rookery up -d",
            )
        stale = paths.runtime_file(state).exists()
        summary = (
            "not running (daemon.json is from a killed daemon; the next start cleans up)" if stale else "not running"
        )
        return Check("daemon", "ok", summary, "" if not stale else "rookery up -d")
    try:
        health = json.loads(connection.send_request(running, "GET", "/api/health"))
    except Exception as error:
        return Check("daemon", "failed", f"the daemon does not respond: {error}", "rookery down, then rookery up -d")
    runtime = connection.read_runtime_file() or {}
    if health.get("instance") != runtime.get("instance"):
        return Check(
            "daemon", "failed", "daemon.json names another instance than the one that responds", "rookery down"
        )
    return Check("daemon", "ok", f"pid {runtime['pid']} at {runtime['url']}, socket {runtime['socket']}")


def check_tasks() -> Iterator[Check]:
    """Check the background tasks of a running daemon; a crashed task may have left work undone."""
    if (daemon := _running_daemon()) is None:
        return
    crashes = daemon["crashes"]
    for crash in crashes:
        remedy = "see rookery logs" if crash["restarted"] else "see rookery logs; rookery down, then rookery up -d"
        yield Check("tasks", "warning", describe_crash(crash), remedy)
    if not crashes:
        yield Check("tasks", "ok", "no background task has crashed")


def check_notify(layered: layers.LayeredSettings) -> Iterator[Check]:
    """Check whether the user's `notify.command` has failed in a running daemon."""
    if (daemon := _running_daemon()) is None:
        return
    if failure := daemon.get("notify_failure"):
        remedy = "run it by hand, fix it, and set it: rookery config set notify.command"
        yield Check("notify", "warning", describe_notify_failure(failure), remedy)
    elif layered.values["notify.command"]:
        yield Check("notify", "ok", "notify.command has not failed")


def _running_daemon() -> dict[str, Any] | None:
    """Return the status of the running daemon; None if it does not run or respond (see `check_daemon`)."""
    running = connection.connect()
    try:
        return json.loads(connection.send_request(running, "GET", "/api/daemon")) if running is not None else None
    except Exception:
        return None


def check_audit() -> Iterator[Check]:
    """Check the audit of a running daemon: whether it is written, and was not changed from outside."""
    if (daemon := _running_daemon()) is None:
        return
    problems = [problem for problem in daemon["problems"] if "audit" in problem]
    for problem in problems:
        yield Check("audit", "warning", problem, "free space if the disk is full; see: rookery guard audit --verify")
    if not problems:
        yield Check("audit", "ok", "written")


def check_ports() -> Check:
    """Check that 127.0.0.1 can be bound; containers and firewalls have been seen to forbid it."""
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
    except OSError as error:
        return Check("ports", "failed", f"127.0.0.1 cannot be bound: {error.strerror}", "check the loopback interface")
    return Check("ports", "ok", "ports of 127.0.0.1 can be bound")


def check_disk(state: Path) -> Check:
    existing = next(folder for folder in (state, *state.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    summary = f"{free / 1e9:.1f} GB free at {existing}"
    if free < _LOW_DISK:
        return Check("disk", "warning", summary, "free some space, or move the state folder with ROOKERY_HOME")
    return Check("disk", "ok", summary)


def check_state(state: Path) -> Check:
    """Check that the state folder can be written, or can be created."""
    existing = next(folder for folder in (state, *state.parents) if folder.exists())
    if (obstacle := find_write_problem((existing,))) is not None:
        return Check("state", "failed", f"{existing} cannot be written to: {obstacle.message}", obstacle.remedy)
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Check("state", "failed", f"{existing} cannot be written to", "set ROOKERY_HOME to a writable folder")
    return Check("state", "ok", str(state) if existing == state else f"{state} will be created on the first start")


def check_store(state: Path) -> Check:
    """Check whether this Rookery can open the store; the file is only read, never opened as a database."""
    try:
        version = peek_version(paths.store_file(state))
    except OSError as error:
        return Check("store", "failed", f"cannot be read: {error.strerror}", f"see {paths.store_file(state)}")
    if version is None:
        return Check("store", "ok", "none yet")
    if version > newest_version():
        return Check("store", "failed", f"its schema {version} is newer than this Rookery", "update Rookery")
    # The version of a new store may still be only in its write-ahead log.
    return Check("store", "ok", f"schema {version}" if version else "newly created")


def check_sandbox(layered: layers.LayeredSettings) -> Check:
    """Check what of a sandbox the kernel can enforce."""
    support = find_support()
    remedy = "" if layered.values["sandbox.unavailable"] == "refuse" else "sandbox.unavailable lets programs start so"
    if support.abi < 1:
        return Check("sandbox", "warning", "this kernel has no Landlock, so no program can be confined", remedy)
    missing = list_missing(support, ConfinementPolicy(network=False))
    seccomp = "seccomp" if support.architecture is not None else "no seccomp"
    summary = f"Landlock ABI {support.abi}, {seccomp}"
    if missing:
        return Check("sandbox", "warning", f"{summary}; not enforced: {', '.join(missing)}", "use a newer kernel")
    return Check("sandbox", "ok", f"{summary}: agents and servers can be confined")


def check_inotify() -> Check:
    try:
        watches = int(Path("/proc/sys/fs/inotify/max_user_watches").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return Check("inotify", "ok", "not used on this system")
    if watches < _MIN_INOTIFY:
        return Check("inotify", "warning", f"only {watches} watches", "sysctl fs.inotify.max_user_watches=524288")
    return Check("inotify", "ok", f"{watches} watches")


def check_modes(state: Path) -> Iterator[Check]:
    """Check for secrets that others could read, and for a state folder that others could write."""
    secrets = [paths.token_file(state), paths.runtime_file(state), paths.store_file(state), paths.log_file(state)]
    secrets += [paths.audit_file(state), paths.audit_key_file(state)]
    for path in [state, *secrets]:
        try:
            status = path.stat() if path == state else path.lstat()
        except OSError:
            continue
        if status.st_uid != os.getuid():
            yield Check(
                "modes", "failed", f"{path} belongs to uid {status.st_uid}", "set ROOKERY_HOME to your own folder"
            )
        elif stat.S_ISLNK(status.st_mode) and path != state:
            yield Check("modes", "failed", f"{path} is a symbolic link", f"rm {path}")
        elif status.st_mode & 0o077:
            summary = f"{path} is open to others (mode {stat.S_IMODE(status.st_mode):04o})"
            # Others may have read the token; the next start makes a new one.
            remedy = f"rm {path}" if path == paths.token_file(state) else f"chmod go= {path}"
            yield Check("modes", "failed", summary, remedy)
        else:
            continue
        return
    yield Check("modes", "ok", "only you can access the secret files")


def check_config(layered: layers.LayeredSettings) -> Iterator[Check]:
    for problem in layered.problems:
        yield Check(
            "config", "failed" if problem.fatal else "warning", f"{problem.source}: {problem.message}", problem.remedy
        )
    if not layered.problems:
        existing = [str(path) for path in layered.files if path.exists()]
        yield Check("config", "ok", ", ".join(existing) or "defaults only")


def check_auth(layered: layers.LayeredSettings) -> Check:
    """Check whether TCP clients need a token: in the running daemon, else by the settings."""
    running = connection.connect()
    if running is not None:
        running.close()
    auth = (connection.read_runtime_file() or {}).get("auth") if running is not None else None
    if (auth or layered.values["auth"]) == "loopback":
        return Check("auth", "warning", LOOPBACK_WARNING, "rookery config set auth token, then restart the daemon")
    return Check("auth", "ok", "every TCP client needs a token")


def check_servers(ports: ClientPorts) -> Iterator[Check]:
    """Check the files that define MCP servers; report each entry that is not used as written, with file and line."""
    # An entry for Rookery itself belongs to a client, which has a row of its own.
    config = exclude_self(load_config(layers.find_checkout(Path.cwd()), os.environ), ports.all_ports, with_notes=False)
    for problem in config.problems:
        summary = f"{problem.file}:{problem.line}: {problem.message}"
        yield Check("servers", "warning" if problem.note else "failed", summary, problem.remedy or "check that line")
    if not config.problems:
        yield Check("servers", "ok", f"{len(config.servers)} defined" if config.servers else "none defined")
