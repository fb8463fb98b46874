"""Starts the daemon in the background and tells how that goes."""

import json
import os
import sys
from collections.abc import Callable, Sequence

from rookery.cli.failure import Failure


def daemon_command(*words: str) -> list[str]:
    """The interpreter that runs us, without the current folder on its path: what lies there must not be imported."""
    return [sys.executable, "-P", "-m", "rookery.daemon", *words]


def narrate(text: str) -> None:
    sys.stderr.write(f"{text} ...\n")


def start_daemon(words: Sequence[str] = (), tell: Callable[[str], None] = narrate) -> dict[str, object] | None:
    """See that one runs and is healthy, or say why not and where its log is. Of many who try at once one starts it.

    `tell` hears how far it is. Answers what the daemon that this call started says of itself, None if another call
    was faster.
    """
    last: Failure | None = None
    for _ in range(3):
        try:
            return _start(words, tell)
        except Failure as failure:
            if failure.code != "already-running":
                raise
            last = failure
        if _wait_for_other():
            return None
    assert last is not None
    raise last


def _wait_for_other() -> bool:
    """Whether another start came to something."""
    from rookery.cli import link
    from rookery.system.lock import wait_until_free
    from rookery.system.places import lock_file, state_folder

    for _ in range(600):
        if running := link.connect():
            running.close()
            return True
        if wait_until_free(lock_file(state_folder()), 0.05):
            return False
    return False


def _start(words: Sequence[str], tell: Callable[[str], None]) -> dict[str, object]:
    from rookery.system.detach import start_detached
    from rookery.system.errors import RookeryError
    from rookery.system.places import ensure_private_folder, log_file, state_folder

    try:
        logs = ensure_private_folder(ensure_private_folder(state_folder()) / "logs")
    except RookeryError as error:
        raise Failure(error.code, error.message, error.remedy) from None
    out = logs / "daemon.out"
    tell("starting the daemon")
    pipe = start_detached(lambda fd: daemon_command("serve", "--ready-fd", str(fd), *words), str(out))
    failure: Failure | None = None
    with os.fdopen(pipe, encoding="utf-8") as told:
        for line in told:
            news = json.loads(line)
            if "ready" in news:
                return news["ready"]
            if "error" in news:
                error = news["error"]
                failure = Failure(error["code"], error["message"], error.get("remedy", ""))
            else:
                tell(news["progress"])
    if failure is not None:
        raise failure
    last = out.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    reason = f": {last[0]}" if last else ""
    raise Failure(
        "daemon-failed",
        f"the daemon did not start{reason}",
        f"its output is in {out}, its log in {log_file(state_folder())}",
    )
