"""Starts the daemon in the background, or replaces this process with one of its commands.

Commands that need imports which the command line avoids run as `python -m rookery.daemon`.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence

from rookery.daemon_client.failure import Failure

_MAX_OUTPUT_BYTES = 100_000_000


def build_daemon_command(*words: str) -> list[str]:
    """Return the command line that runs the daemon package with this interpreter.

    `-P` keeps the current folder off the import path: files there must not be imported.
    """
    return [sys.executable, "-P", "-m", "rookery.daemon", *words]


def exec_daemon_command(*words: str) -> None:
    """Replace this process with a command of the daemon package."""
    os.getcwd()  # noqa: PTH109 - fails here, where it is reported, if the current folder was deleted
    sys.stdout.flush()
    command = build_daemon_command(*words)
    os.execv(command[0], command)  # noqa: S606 - the same interpreter


def write_progress(text: str) -> None:
    sys.stderr.write(f"{text} ...\n")


def require_user(action: str) -> None:
    """Raise `Failure` if this process was started by the Rookery that it would act on."""
    from rookery.system.errors import RookeryError
    from rookery.system.fs.paths import state_folder
    from rookery.system.process.leftovers import require_user

    try:
        require_user(state_folder(), action)
    except RookeryError as error:
        raise Failure(error.code, error.message, error.remedy) from None


def start_daemon(
    words: Sequence[str] = (), on_progress: Callable[[str], None] = write_progress
) -> dict[str, object] | None:
    """Start the daemon and wait until it is healthy. Of several simultaneous calls, one starts it.

    Return what the started daemon reports about itself, or None if another call started it. Raise `Failure` with the
    reason and the path of the log if it does not start.
    """
    last: Failure | None = None
    for _ in range(3):
        try:
            return _start_detached(words, on_progress)
        except Failure as failure:
            if failure.code != "already-running":
                raise
            last = failure
        if _wait_for_other():
            return None
    assert last is not None
    raise last


def _wait_for_other() -> bool:
    """Wait for a start by another process, and return whether its daemon can be reached."""
    from rookery.daemon_client import connection
    from rookery.system.fs.lock import FileLock, wait_until_free
    from rookery.system.fs.paths import lock_file, state_folder

    lock = lock_file(state_folder())
    failed_polls = 0
    for _ in range(600):
        if running := connection.connect():
            running.close()
            return True
        if wait_until_free(lock, 0.05):
            return False
        # The socket may just have been deleted; the daemon creates it again.
        holder = FileLock(lock).read_note()
        failed_polls = failed_polls + 1 if holder.endswith("running") else 0
        if failed_polls > 100:
            raise Failure(
                "daemon-unreachable",
                f"a daemon runs ({holder}), but nothing listens on its socket in {state_folder()}",
                "rookery down, then rookery up -d",
            )
    return False


def _start_detached(words: Sequence[str], on_progress: Callable[[str], None]) -> dict[str, object]:
    from rookery.system.errors import RookeryError
    from rookery.system.fs.atomic import read_plain, set_aside_unusable
    from rookery.system.fs.paths import ensure_private_folder, log_file, state_folder
    from rookery.system.process.launch import start_detached

    try:
        logs = ensure_private_folder(state_folder()) / "logs"
        notices = [set_aside_unusable(logs, folder=True)]
        out = ensure_private_folder(logs) / "daemon.out"
        notices.append(set_aside_unusable(out))
    except RookeryError as error:
        raise Failure(error.code, error.message, error.remedy) from None
    require_user("starting the daemon")
    for notice in filter(None, notices):
        sys.stderr.write(f"{notice}\n")
    on_progress("starting the daemon")
    pipe = start_detached(lambda fd: build_daemon_command("serve", "--ready-fd", str(fd), *words), str(out))
    failure: Failure | None = None
    with os.fdopen(pipe, encoding="utf-8") as stream:
        for line in stream:
            message = json.loads(line)
            if "ready" in message:
                return message["ready"]
            if "error" in message:
                error = message["error"]
                failure = Failure(error["code"], error["message"], error.get("remedy", ""))
            elif "notice" in message:
                sys.stderr.write(f"{message['notice']}\n")
            else:
                on_progress(message["progress"])
    log = log_file(state_folder())
    if failure is not None:
        if log.exists():
            failure.remedy = "; ".join(part for part in (failure.remedy, f"its log: {log}") if part)
        raise failure
    last = read_plain(out, _MAX_OUTPUT_BYTES).decode("utf-8", "replace").strip().splitlines()[-1:]
    reason = f": {last[0]}" if last else ""
    raise Failure(
        "daemon-failed",
        f"the daemon did not start{reason}",
        f"its output is in {out}, its log in {log}",
    )
