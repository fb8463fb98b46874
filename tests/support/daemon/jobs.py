"""A process that the real daemon has started for a workspace, and that runs jobs for a test."""

import itertools
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import aiohttp
from starlette.applications import Starlette
from starlette.routing import Route

from rookery.api import app as api
from rookery.operations.table import make_unbound_operations
from rookery.system.ids import project_id
from rookery.system.process.table import MARKER
from tests.support.cli.user import user
from tests.support.daemon.process import ROOKERY, Daemon, rookery, up
from tests.support.mcp.caller import Caller, told, words
from tests.support.workspaces.service import make_repository

PROGRAM = Path(__file__).parents[2] / "programs" / "run_jobs.py"
JUSTFILE = f"""
inside jobs results:
  @{sys.executable} -P {PROGRAM} {{{{quote(jobs)}}}} {{{{quote(results)}}}}
"""

Job = dict[str, Any]
# For all that one process is asked to do.
_SECONDS = 500


# Runs a command on a terminal of its own, and ends as it does.
TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


def command(*words: str, cwd: Path | None = None, terminal: bool = False) -> Job:
    """Return the job that runs `rookery` with these words."""
    return program(*([sys.executable, "-c", TERMINAL] if terminal else []), str(ROOKERY), *words, cwd=cwd)


def program(*argv: str, cwd: Path | None = None) -> Job:
    home = {name: os.environ[name] for name in ("HOME", "ROOKERY_HOME")}
    return {"argv": argv, "env": home} | ({"cwd": str(cwd)} if cwd else {})


def as_child(daemon: Daemon, child: str = "1") -> dict[str, str]:
    """Return the marker of a child of this daemon, after the marker of the test."""
    return {MARKER: f"{os.environ[MARKER]}:{daemon.runtime['instance']}.{child}"}


@dataclass
class JobRunner:
    """A daemon with the workspaces `fix` and `other`; jobs are run by a task of `fix`."""

    daemon: Daemon
    app: Path
    fix: Path
    other: Path
    http: aiohttp.ClientSession
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def project(self) -> str:
        return project_id(self.app)

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Job:
        """Return the job that sends a request over the Unix socket."""
        return {"request": [method, path, body, headers], "to": self.daemon.runtime["socket"]}

    def to_port(self, method: str, path: str, body: Any = None, **headers: str) -> Job:
        return {"request": [method, path, body, headers], "to": self.daemon.port}

    def token(self, name: str) -> str:
        """Return the token of a workspace, as its agent has it."""
        done = user("ws", "token", name, cwd=self.app)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    async def run(self, *jobs: Job) -> list[Any]:
        """Run all jobs in one process, and return their results."""
        number = next(self._numbers)
        asked, answered = (self.daemon.state.parent / f"{kind}-{number}.json" for kind in ("jobs", "results"))
        asked.write_text(json.dumps(jobs))
        given = {"task_name": "inside", "arguments": [str(asked), str(answered)], "timeout": _SECONDS * 1000}
        ran = await self.owner("fix").call("run_just_task", given)
        # Where the task has deleted its own workspace it is ended, and has answered nothing.
        assert answered.exists() or "because its workspace was closed" in words(ran), ran
        return json.loads(answered.read_text()) if answered.exists() else []

    def owner(self, name: str) -> Caller:
        """Return the owner's client at the endpoint of a workspace."""
        url = f"{self.daemon.runtime['url']}/w/{self.project}/{name}/mcp"
        return Caller(self.http, url, headers={"Authorization": f"Bearer {self.daemon.token}"}, limit=_SECONDS)

    async def names(self) -> list[str]:
        """Return the names of all workspaces."""
        return [one["name"] for one in told(await self.owner("@main").call("workspace_list"))]


@asynccontextmanager
async def start_job_runner(
    *settings: str, files: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None
) -> AsyncGenerator[JobRunner]:
    """Start a daemon whose user has added a project with a task, and created two workspaces of it."""
    app = make_repository(Path.home() / "src" / "app", {"justfile": JUSTFILE, **(files or {})})
    daemon = up(*(f"--set={one}" for one in settings), env=env)
    try:
        for words in (("project", "add", str(app)), ("ws", "create", "fix"), ("ws", "create", "other")):
            done = user(*words, cwd=app)
            assert done.returncode == 0, done.stderr
        paths = {one["name"]: Path(one["path"]) for one in json.loads(user("ws", "list", "--json", cwd=app).stdout)}
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_SECONDS)) as http:
            yield JobRunner(daemon, app, paths["fix"], paths["other"], http)
    finally:
        assert rookery("down").returncode == 0


def routes() -> list[tuple[str, str]]:
    """Return each method and path of the app's routes, including new ones."""
    app = cast(Starlette, api.build_app(cast(api.AppServices, Mock(operations=make_unbound_operations()))))
    found = [one for one in app.routes if isinstance(one, Route)]
    assert len(found) == len(app.routes) > 80
    return [(method, one.path) for one in found for method in sorted(one.methods or set())]


def refused(result: Any) -> bool:
    """Return whether a command was refused because Rookery started it, by its exit code and its message."""
    said: str = result["out"] + result["err"]
    return result["code"] == 4 and "was started by Rookery" in said and "in a terminal that Rookery did not" in said
