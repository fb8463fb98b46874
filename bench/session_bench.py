"""A daemon with one agent, whose model plays a script, and OpenCode's own API to compare with."""

import base64
import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from .harness import user_environment
from .servers import Server, running

SECONDS = 300.0
# Less than the time after which either server closes an idle connection.
_KEPT_SECONDS = 2.0
_PYTHON = [sys.executable, "-P", "-m", "rookery.daemon"]
# No network is used.
_OFFLINE = {
    f"OPENCODE_DISABLE_{what}": "1" for what in ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
}
_PERSON = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgSign=false")


@dataclass(frozen=True)
class ApiClient:
    """A client of one port; each thread has its own connection, which is kept while it is used."""

    port: int
    headers: Mapping[str, str]
    _kept: threading.local = field(default_factory=threading.local)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        text = self.raw(method, path, body)
        return json.loads(text) if text else None

    def raw(self, method: str, path: str, body: Any = None) -> bytes:
        """Send a request and return the body of the response. Raise if it fails."""
        connection = self._connection()
        connection.request(method, path, json.dumps(body) if body is not None else None, dict(self.headers))
        response = connection.getresponse()
        text = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path} got {response.status}: {text!r}")
        return text

    def _connection(self) -> http.client.HTTPConnection:
        now = time.monotonic()
        connection: http.client.HTTPConnection | None = getattr(self._kept, "connection", None)
        if connection is None or now > self._kept.until:
            connection = self._kept.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        self._kept.until = now + _KEPT_SECONDS
        return connection


@dataclass(frozen=True)
class SessionBench:
    """`api` is Rookery's API, `agent` is OpenCode's own, for sessions in `folder`; `pid` is the daemon's."""

    api: ApiClient
    agent: ApiClient
    folder: Path
    pid: int

    def session(self, folder: str | None = None) -> str:
        """Create a session through Rookery. It has a title, so that the model gets no request for one."""
        made = self.api.ask("POST", "/api/sessions", {"directory": folder or str(self.folder), "title": "bench"})
        return made["id"]

    def workspace(self, name: str) -> str:
        """Create another workspace and return its folder."""
        return self.api.ask("POST", "/api/workspaces", {"name": name, "wait": True})["path"]

    def at(self, path: str) -> str:
        """Return a path of OpenCode's API for this folder."""
        return f"{path}?directory={quote(str(self.folder), safe='')}"

    def rest(self) -> None:
        """Wait until all sessions are idle."""
        ends = time.perf_counter() + SECONDS
        while self.agent.ask("GET", self.at("/session/status")):
            if time.perf_counter() > ends:
                raise RuntimeError("the agent does not become idle")
            time.sleep(0.005)


@contextlib.contextmanager
def start_session_bench(opencode: Path, folder: Path, script: Mapping[str, Any]) -> Generator[SessionBench]:
    """Run the model, the daemon and an agent until the end of the block."""
    app = _repository(folder / "app")
    (folder / "script.json").write_text(json.dumps(script))
    path = os.pathsep.join([str(opencode.parent), os.environ["PATH"]])
    agents = {"ROOKERY_AGENTS_VERSION": "path", "ROOKERY_AGENTS_START": "use"}
    env = user_environment(folder, PATH=path, ROOKERY_HOME=str(folder / "state"), **agents) | _OFFLINE
    model = [*_PYTHON, "model", f"--script={folder / 'script.json'}", "--port={port}", "--json"]
    # A short history of events, so that it is full, and its memory constant, after the warm-up.
    daemon = [*_PYTHON, "serve", "--set", "http.port={port}", "--set", "events.history=50"]
    with running(Server(model, "/v1/models", folder, env)) as played:
        _configure(folder / ".config" / "opencode", played.port)
        with running(Server(daemon, "/api/health", app, env)) as process:
            token = (folder / "state" / "token").read_text().strip()
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            api = ApiClient(process.port, headers)
            project = api.ask("POST", "/api/projects", {"path": str(app)})
            agent = api.ask("POST", f"/api/workspaces/{_id_of(project)}/@main/agent/start")
            yield SessionBench(api, ApiClient(agent["port"], _basic(agent["pid"])), app, process.pid)


def _id_of(project: Any) -> str:
    return project.get("id") or project["project"]["id"]


def _basic(pid: int) -> dict[str, str]:
    password = psutil.Process(pid).environ()["OPENCODE_SERVER_PASSWORD"]
    pair = base64.b64encode(f"opencode:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}", "Content-Type": "application/json"}


def _configure(folder: Path, port: int) -> None:
    """Write the user's OpenCode config: one model, and no plugin package to fetch."""
    limits = {"context": 10_000_000, "output": 8_000}
    model = {"name": "Scripted", "tool_call": True, "limit": limits}
    options = {"baseURL": f"http://127.0.0.1:{port}/v1", "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"scripted": model}}
    config = {
        "$schema": "https://opencode.ai/config.json",
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "enabled_providers": ["scripted"],
        "provider": {"scripted": provider},
        "snapshot": False,
    }
    (folder / "node_modules").mkdir(parents=True)
    (folder / "opencode.json").write_text(json.dumps(config))
    (folder / "package.json").write_text("{}")
    (folder / "package-lock.json").write_text(json.dumps({"name": "x", "lockfileVersion": 3, "packages": {"": {}}}))


def _repository(path: Path) -> Path:
    path.mkdir()
    (path / "README.md").write_text("one\n" * 100)
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "one"]):
        subprocess.run(["git", *_PERSON, "-C", str(path), *words], check=True, timeout=60)
    return path.resolve()
