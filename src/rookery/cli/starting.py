"""Starts the daemon in the background and tells how that goes."""

import json
import os
import sys
from collections.abc import Sequence

from rookery.cli.failure import Failure


def daemon_command(*words: str) -> list[str]:
    """The interpreter that runs us, without the current folder on its path: what lies there must not be imported."""
    return [sys.executable, "-P", "-m", "rookery.daemon", *words]


def start_daemon(words: Sequence[str] = (), *, quiet: bool = False) -> dict[str, object]:
    """Start it and wait until it is healthy, or say why it is not and where its log is."""
    from rookery.system.detach import start_detached
    from rookery.system.errors import RookeryError
    from rookery.system.places import ensure_private_folder, log_file, state_folder

    try:
        logs = ensure_private_folder(ensure_private_folder(state_folder()) / "logs")
    except RookeryError as error:
        raise Failure(error.code, error.message, error.remedy) from None
    out = logs / "daemon.out"
    if not quiet:
        sys.stderr.write("starting the daemon ...\n")
    pipe = start_detached(daemon_command("serve", "--ready-fd", "{fd}", *words), str(out))
    failure: Failure | None = None
    with os.fdopen(pipe, encoding="utf-8") as told:
        for line in told:
            news = json.loads(line)
            if "ready" in news:
                return news["ready"]
            if "error" in news:
                error = news["error"]
                exit_code = 3 if error["code"] == "invalid-input" else None
                failure = Failure(error["code"], error["message"], error.get("remedy", ""), exit_code)
            else:
                sys.stderr.write(f"{news['progress']} ...\n")
    if failure is not None:
        raise failure
    last = out.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    reason = f": {last[0]}" if last else ""
    raise Failure(
        "daemon-failed",
        f"the daemon did not start{reason}",
        f"its output is in {out}, its log in {log_file(state_folder())}",
    )
