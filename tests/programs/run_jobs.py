"""Run the jobs of a test in a process that Rookery has started.

run_jobs.py JOBS RESULTS
JOBS is a JSON list; each job is {"argv", "cwd", "env"}, a command to run, or {"request": [method, path, body, headers],
"to": the path of a Unix socket or a port}. A list with the result of each job is written to RESULTS.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

SECONDS = 60


class OverSocket(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("rookery", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self._path)


def ran(job: Any) -> Any:
    done = subprocess.run(
        job["argv"],
        cwd=job.get("cwd"),
        env=os.environ | job.get("env", {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def answered(job: Any) -> Any:
    method, path, body, headers = job["request"]
    to = job["to"]
    line = OverSocket(to) if isinstance(to, str) else http.client.HTTPConnection("127.0.0.1", to, timeout=SECONDS)
    kind = {"Content-Type": "application/json"} if body is not None else {}
    try:
        line.request(method, path, json.dumps(body) if body is not None else None, kind | headers)
        answer = line.getresponse()
        streams = answer.getheader("content-type", "").startswith("text/event-stream")
        data = answer.readline() if streams else answer.read()
        return {"status": answer.status, "body": data.decode("utf-8", "replace")}
    except OSError as error:
        return {"error": str(error)}
    finally:
        line.close()


jobs = json.loads(Path(sys.argv[1]).read_text())
results = [ran(job) if "argv" in job else answered(job) for job in jobs]
Path(sys.argv[2]).write_text(json.dumps(results))
