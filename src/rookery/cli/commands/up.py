"""`rookery up` and `rookery down`."""

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from rookery.cli import link, output
from rookery.cli.failure import Failure
from rookery.cli.starting import daemon_command, start_daemon

if TYPE_CHECKING:
    from pathlib import Path

UP_EPILOG = """\b
Examples:
  rookery up                       in the foreground, on this repository; Ctrl-C stops it
  rookery up -d ~/src/app          in the background; returns once it is healthy
  rookery up --set log.level=debug
"""


@click.command(epilog=UP_EPILOG)
@click.argument("path", required=False, type=click.Path(file_okay=False))
@click.option("-d", "--detach", is_flag=True, help="Run in the background; return when it is healthy.")
@click.option("--port", type=click.IntRange(0, 65535), help="The app port, as setting http.port.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="As setting log.level.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any setting; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON (with -d).")
def up(
    path: str | None, detach: bool, port: int | None, log_level: str | None, settings: tuple[str, ...], as_json: bool
) -> None:
    """Start the daemon and register a repository.

    PATH is any folder of it, by default the current one. Without -d the daemon runs in the foreground until it is
    signalled.
    """
    if as_json and not detach:
        raise click.UsageError("--json goes with -d: in the foreground there is no answer")
    if malformed := [pair for pair in settings if "=" not in pair]:
        raise click.UsageError(f"--set takes KEY=VALUE, not {malformed[0]!r}")
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
        command = daemon_command("serve", "--foreground", *words)
        os.execv(command[0], command)  # noqa: S606 - the same interpreter
    import json

    ready: dict[str, Any] | None = None
    running = link.connect()
    if running is not None:
        running.close()
    else:
        ready = start_daemon(words)
    if ready is None and pairs:
        output.narrate("a daemon is running already; its settings stay as they are until `rookery down`")
    project = _registered(folder, required=path is not None, silent=as_json)
    daemon = ready or json.loads(link.call("GET", "/api/status", start=False))["daemon"]
    pid, url, started = daemon["pid"], daemon["url"], ready is not None
    if as_json:
        told = {"pid": pid, "url": url, "mcp_url": f"{url}/mcp", "started": started, "project": project}
        output.answer(json.dumps(told))
    else:
        output.answer(f"rookery is up at {url} (pid {pid}{'' if started else ', running already'})")


def _registered(folder: str, *, required: bool, silent: bool) -> str | None:
    """The id of the folder's project. Which it is, or why there is none, is told."""
    import json

    from rookery.cli.visible import visible

    try:
        project = json.loads(link.call("POST", "/api/projects", {"path": folder}, start=False))
    except Failure as failure:
        if required:
            raise
        if not silent:
            remedy = "go to a repository, or name it: rookery up -d PATH"
            output.narrate(f"no project: {visible(failure.message)} ({remedy})")
        return None
    if not silent:
        output.narrate(f"{visible(project['path'])} is the project {visible(project['id'])}")
    return project["id"]


DOWN_EPILOG = """\b
Examples:
  rookery down
  rookery down --timeout 5
"""


@click.command(epilog=DOWN_EPILOG)
@click.option("--timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True, help="Seconds to wait.")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def down(timeout: float, as_json: bool) -> None:
    """Stop the daemon, and everything it started.

    Returns once it has ended. If none is running there is nothing to do, and that is a success.
    """
    from rookery.system.clock import SYSTEM_CLOCK
    from rookery.system.lock import FileLock, wait_until_free
    from rookery.system.places import lock_file, state_folder

    ends = SYSTEM_CLOCK.monotonic() + timeout
    lock = lock_file(state_folder())
    running = link.connect()
    if running is not None:
        _ask_to_stop(running, timeout)
    elif not _stop_by_signal(lock):
        _tell_down(as_json, stopped=False)
        return
    if not wait_until_free(lock, max(ends - SYSTEM_CLOCK.monotonic(), 0.001)):
        holder = FileLock(lock).holder() or "pid unknown"
        raise Failure("timeout", f"the daemon ({holder}) is still stopping after {timeout:g} s", "see `rookery logs`")
    _tell_down(as_json, stopped=True)


def _ask_to_stop(running: link.Link, timeout: float) -> None:
    try:
        link.exchange(running, "POST", "/api/daemon/stop", {"reason": "rookery down"}, seconds=min(timeout / 2, 10))
    except Failure:
        # It does not listen; the pid is the one that answered on its socket.
        if running.peer is None:
            raise
        output.narrate("the daemon does not answer; sending it SIGTERM")
        with contextlib.suppress(ProcessLookupError):
            os.kill(running.peer, signal.SIGTERM)


def _stop_by_signal(lock: "Path") -> bool:
    """For a daemon that has no socket yet, or no longer: whoever holds the lock has written its pid there."""
    from rookery.system.lock import FileLock, is_held

    if not is_held(lock):
        return False
    from rookery.system.processes import signal_if_same

    match FileLock(lock).holder().split():
        case ["pid", pid, "started", moment, phase]:
            output.narrate(f"the daemon (pid {pid}) is {phase}; waiting for its end")
            if phase != "stopping":
                signal_if_same(int(pid), float(moment), signal.SIGTERM)
        case _:
            output.narrate("the daemon has just begun to start; waiting")
    return True


def _tell_down(as_json: bool, *, stopped: bool) -> None:
    if as_json:
        output.answer('{"stopped": true}' if stopped else '{"stopped": false}')
    else:
        output.answer("rookery is down" if stopped else "rookery was not running")
