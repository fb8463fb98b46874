"""`rookery up` and `rookery down`."""

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from rookery.cli import output
from rookery.cli.commands.project import report_approvals
from rookery.cli.options import json_option
from rookery.daemon_client import connection
from rookery.daemon_client.failure import Failure
from rookery.daemon_client.start import build_daemon_command, require_user, start_daemon

if TYPE_CHECKING:
    from pathlib import Path

UP_EPILOG = """\b
Examples:
  rookery up                       in the foreground, on this repository; Ctrl-C stops it
  rookery up -d ~/src/app          in the background; returns once it is healthy
  rookery up --set log.level=debug
"""

DOWN_EPILOG = """\b
Examples:
  rookery down
  rookery down --timeout 5
"""


@click.command(epilog=UP_EPILOG)
@click.argument("path", required=False, type=click.Path(file_okay=False))
@click.option("-d", "--detach", is_flag=True, help="Run in the background; return when it is healthy.")
@click.option("--port", type=click.IntRange(0, 65535), help="The app port; overrides the setting http.port.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="The log level; overrides the setting log.level.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a setting; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; needs -d.")
def up(
    path: str | None, detach: bool, port: int | None, log_level: str | None, settings: tuple[str, ...], as_json: bool
) -> None:
    """Start the daemon and register a repository.

    PATH is any folder of the repository; default: the current folder. The main checkout gets its MCP server, but no
    agent; `rookery ws open @main` starts one. Without -d, the daemon runs in the foreground until it receives a signal.
    """
    if as_json and not detach:
        raise click.UsageError("--json needs -d")
    if malformed := [pair for pair in settings if "=" not in pair]:
        raise click.UsageError(f"--set needs KEY=VALUE, not {malformed[0]!r}")
    pairs = list(settings)
    if port is not None:
        pairs.append(f"http.port={port}")
    if log_level is not None:
        pairs.append(f"log.level={log_level}")
    folder = os.path.abspath(path or os.getcwd())  # noqa: PTH100, PTH109 - pathlib would cost as much as click
    words = ["--project", folder, *(["--project-required"] if path else [])]
    words += [f"--set={pair}" for pair in pairs]
    if not detach:
        sys.stdout.flush()
        command = build_daemon_command("serve", "--foreground", *words)
        os.execv(command[0], command)  # noqa: S606 - the same interpreter
    import json

    ready: dict[str, Any] | None = None
    running = connection.connect()
    if running is not None:
        running.close()
    else:
        ready = start_daemon(words)
    if ready is None and pairs:
        output.write_note("a daemon is already running; it keeps its settings until `rookery down`")
    registration = _register_project(folder, required=path is not None, silent=as_json)
    mcp_server = _open_main(registration["id"], silent=as_json) if registration is not None else None
    # A daemon that this command started has registered the project itself.
    registered = ready if ready is not None and "approved" in ready else registration or {}
    report_approvals(registered)
    approvals = {"approved": registered.get("approved", []), "note": registered.get("note", "")}
    project = registration["id"] if registration is not None else None
    daemon = ready or json.loads(connection.call("GET", "/api/status", start=False))["daemon"]
    pid = daemon["pid"]
    url = daemon["url"]
    started = ready is not None
    if as_json:
        result = {"pid": pid, "url": url, "mcp_url": f"{url}/mcp", "started": started, "project": project}
        result["main_mcp_url"] = mcp_server
        output.write(json.dumps(result | approvals))
    else:
        output.write(f"rookery is up at {url} (pid {pid}{'' if started else ', already running'})")


def _register_project(folder: str, *, required: bool, silent: bool) -> dict[str, Any] | None:
    """Register the folder's project, and report which it is, or why there is none."""
    import json

    from rookery.cli.output import visible

    try:
        project = json.loads(connection.call("POST", "/api/projects", {"path": folder}, start=False))
    except Failure as failure:
        if required or failure.code == "forbidden":
            raise
        if not silent:
            remedy = "change to a repository, or name one: rookery up -d PATH"
            output.write_note(f"no project: {visible(failure.message)} ({remedy})")
        return None
    if not silent:
        output.write_note(f"{visible(project['path'])} is the project {visible(project['id'])}")
    return project


def _open_main(project: str, *, silent: bool) -> str | None:
    """Open the main checkout of a project without its agent, and report and return the address of its MCP server."""
    import json

    from rookery.cli.output import visible

    try:
        data = connection.call("POST", f"/api/workspaces/{project}/@main/open", {"agent": False}, start=False)
    except Failure as failure:
        # A bare repository has no main checkout.
        if failure.code != "workspace-not-found" and not silent:
            output.write_note(f"its main checkout is not open: {visible(failure.message)}")
        return None
    mcp = json.loads(data)["mcp"]
    if not silent and (text := mcp["url"] or mcp["last_error"]):
        output.write_note(f"the MCP server of its main checkout: {visible(text)}")
    return mcp["url"]


@click.command(epilog=DOWN_EPILOG)
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True, help="Maximum seconds to wait."
)
@json_option
def down(timeout: float, as_json: bool) -> None:
    """Stop the daemon, and everything it started.

    Returns when the daemon has stopped. If none is running, this succeeds and does nothing.
    """
    from rookery.system.clock import SYSTEM_CLOCK
    from rookery.system.fs.lock import FileLock, wait_until_free
    from rookery.system.fs.paths import lock_file, state_folder
    from rookery.system.process.leftovers import InstanceRegistry
    from rookery.system.process.table import is_alive, wait_for_exits

    deadline = SYSTEM_CLOCK.monotonic() + timeout
    lock = lock_file(state_folder())
    # The register knows the daemon even if its lock file was deleted.
    daemon = InstanceRegistry(state_folder()).find_running()
    running = connection.connect()
    if running is not None:
        _ask_to_stop(running, timeout)
    elif not _stop_by_signal(lock):
        if daemon is None:
            _write_down(as_json, stopped=False)
            return
        require_user("stopping the daemon")
        output.write_note(f"the daemon (pid {daemon.pid}) has lost its lock and its socket; sending it SIGTERM")
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon.pid, signal.SIGTERM)
    free = wait_until_free(lock, max(deadline - SYSTEM_CLOCK.monotonic(), 0.001))
    if free and daemon is not None:
        wait_for_exits([daemon], max(deadline - SYSTEM_CLOCK.monotonic(), 0.001))
        free = not is_alive(daemon)
    if not free:
        holder = FileLock(lock).read_note() or "pid unknown"
        raise Failure("timeout", f"the daemon ({holder}) is still stopping after {timeout:g} s", "see `rookery logs`")
    _write_down(as_json, stopped=True)


def _ask_to_stop(running: connection.DaemonConnection, timeout: float) -> None:
    try:
        connection.send_request(
            running, "POST", "/api/daemon/stop", {"reason": "rookery down"}, seconds=min(timeout / 2, 10)
        )
    except Failure as failure:
        # The daemon does not respond: signal the process at the other end of the socket.
        if running.peer_pid is None or failure.code not in ("daemon-unreachable", "timeout"):
            raise
        require_user("stopping the daemon")
        output.write_note("the daemon does not respond; sending it SIGTERM")
        with contextlib.suppress(ProcessLookupError):
            os.kill(running.peer_pid, signal.SIGTERM)


def _stop_by_signal(lock: "Path") -> bool:
    """Stop a daemon that has no socket yet, or no longer, by the pid in its lock. Return False if the lock is free."""
    from rookery.system.fs.lock import FileLock, is_held

    if not is_held(lock):
        return False
    require_user("stopping the daemon")
    from rookery.system.process.table import signal_if_same

    match FileLock(lock).read_note().split():
        case ["pid", pid, "started", moment, phase]:
            output.write_note(f"the daemon (pid {pid}) is {phase}; waiting until it has stopped")
            if phase != "stopping":
                signal_if_same(int(pid), float(moment), signal.SIGTERM)
        case _:
            output.write_note("the daemon is starting; waiting")
    return True


def _write_down(as_json: bool, *, stopped: bool) -> None:
    if as_json:
        output.write('{"stopped": true}' if stopped else '{"stopped": false}')
    else:
        output.write("rookery is down" if stopped else "rookery was not running")
