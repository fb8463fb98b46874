"""Start a daemon for each line on stdin, in a fork with all modules imported, and print the result.

The result is a line of JSON: `told` contains the progress messages of the daemon, `error` why it refused to start,
`projects` its list of projects once it runs, `second` the refusal of a second daemon on the same state folder. `hangs`
names what was not done within the time limit, the first argument. The second argument is a file for all output.
"""

import http.client
import json
import os
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from rookery.daemon.options import Options
from rookery.daemon.serve import serve
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.fs import paths

SECONDS, PRINTED = float(sys.argv[1]), Path(sys.argv[2])


class Started:
    """A daemon that is starting. `outcome` is its final report; None if it hangs."""

    def __init__(self) -> None:
        reads, writes = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reads)
            _become_daemon(writes)
        os.close(writes)
        self._ended = os.pidfd_open(self.pid)
        self.told: list[str] = []
        self.outcome = self._hear(reads)

    def _hear(self, pipe: int) -> dict[str, Any] | None:
        rest, outcome, ends = b"", dict[str, Any](), SYSTEM_CLOCK.monotonic() + SECONDS
        while "ready" not in outcome and select.select([pipe], [], [], max(ends - SYSTEM_CLOCK.monotonic(), 0))[0]:
            if not (data := os.read(pipe, 65_536)):
                os.close(pipe)
                return outcome or {"error": {"code": "", "message": "it ended and gave no reason"}}
            *lines, rest = (rest + data).split(b"\n")
            for said in map(json.loads, lines):
                self.told += [said["notice"]] if "notice" in said else []
                outcome = said if "ready" in said or "error" in said else outcome
        os.close(pipe)
        return outcome if "ready" in outcome else None

    def end(self, number: int) -> bool:
        """Send this signal, and return whether the daemon ended."""
        signal.pidfd_send_signal(self._ended, number)
        ended = bool(select.select([self._ended], [], [], SECONDS)[0])
        if not ended:
            signal.pidfd_send_signal(self._ended, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._ended)
        return ended


def _become_daemon(pipe: int) -> None:
    os.setsid()
    with PRINTED.open("ab") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    code = 70
    try:
        code = serve(Options(ready_fd=pipe))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def ask(path: str) -> Any:
    """Return the daemon's response over its socket."""
    link = http.client.HTTPConnection("rookery", timeout=SECONDS)
    link.sock = socket.socket(socket.AF_UNIX)
    link.sock.settimeout(SECONDS)
    link.sock.connect(json.loads(paths.runtime_file(paths.state_folder()).read_text())["socket"])
    try:
        link.request("GET", path)
        return json.loads(link.getresponse().read())
    finally:
        link.close()


def try_start() -> dict[str, Any]:
    first = Started()
    result: dict[str, Any] = {"told": first.told, "error": None, "hangs": []}
    if first.outcome is None:
        result["hangs"].append("start")
        first.end(signal.SIGKILL)
        return result
    if "error" in first.outcome:
        result["error"] = first.outcome["error"]
        if not first.end(0):
            result["hangs"].append("end after the refusal")
        return result
    second = Started()
    result["second"] = (second.outcome or {}).get("error")
    second.end(signal.SIGKILL if result["second"] is None else 0)
    result["projects"] = ask("/api/projects")
    if not first.end(signal.SIGTERM):
        result["hangs"].append("stop")
    return result


for _ in sys.stdin:
    print(json.dumps(try_start()), flush=True)
