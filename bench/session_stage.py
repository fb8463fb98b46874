"""A daemon with one agent, whose model plays a script; and OpenCode's own API, to compare with."""

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
# Less than either server keeps a connection that nobody uses.
_KEPT_SECONDS = 2.0
_PYTHON = [sys.executable, "-P", "-m", "rookery.daemon"]
# Nobody on the network is asked for anything.
_OFFLINE = {
    f"OPENCODE_DISABLE_{what}": "1" for what in ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
}
_PERSON = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgSign=false")


@dataclass(frozen=True)
class Face:
    """HTTP at one port; each thread has a connection of its own, which is kept while it is in use."""

    port: int
    headers: Mapping[str, str]
    _kept: threading.local = field(default_factory=threading.local)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        text = self.raw(method, path, body)
        return json.loads(text) if text else None

    def raw(self, method: str, path: str, body: Any = None) -> bytes:
        """The bytes of the answer; that it succeeds is seen to."""
        connection = self._connection()
        connection.request(method, path, json.dumps(body) if body is not None else None, dict(self.headers))
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path} got {answer.status}: {text!r}")
        return text

    def _connection(self) -> http.client.HTTPConnection:
        now = time.monotonic()
        found: http.client.HTTPConnection | None = getattr(self._kept, "connection", None)
        if found is None or now > self._kept.until:
            found = self._kept.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        self._kept.until = now + _KEPT_SECONDS
        return found


@dataclass(frozen=True)
class Stage:
    """`house` is Rookery's API, `agent` is OpenCode's own, for sessions in `folder`; `pid` is the daemon's."""

    house: Face
    agent: Face
    folder: Path
    pid: int

    def session(self, folder: str | None = None) -> str:
        """A session of an agent, through Rookery; it has a title, so that the model is not asked for one."""
        made = self.house.ask("POST", "/api/sessions", {"directory": folder or str(self.folder), "title": "bench"})
        return made["id"]

    def workspace(self, name: str) -> str:
        """The folder of another workspace."""
        return self.house.ask("POST", "/api/workspaces", {"name": name, "wait": True})["path"]

    def at(self, path: str) -> str:
        """A path of OpenCode's API, for this folder."""
        return f"{path}?directory={quote(str(self.folder), safe='')}"

    def rest(self) -> None:
        """Wait until no session does anything."""
        ends = time.perf_counter() + SECONDS
        while self.agent.ask("GET", self.at("/session/status")):
            if time.perf_counter() > ends:
                raise RuntimeError("the agent does not come to rest")
            time.sleep(0.005)


@contextlib.contextmanager
def a_stage(opencode: Path, folder: Path, script: Mapping[str, Any]) -> Generator[Stage]:
    """Everything runs until the end of the block."""
    app = _repository(folder / "app")
    (folder / "script.json").write_text(json.dumps(script))
    path = os.pathsep.join([str(opencode.parent), os.environ["PATH"]])
    agents = {"ROOKERY_AGENTS_VERSION": "path", "ROOKERY_AGENTS_START": "use"}
    env = user_environment(folder, PATH=path, ROOKERY_HOME=str(folder / "state"), **agents) | _OFFLINE
    model = [*_PYTHON, "model", f"--script={folder / 'script.json'}", "--port={port}", "--json"]
    # The events that are kept for readers who come back are soon as many as they may be.
    daemon = [*_PYTHON, "serve", "--set", "http.port={port}", "--set", "events.history=50"]
    with running(Server(model, "/v1/models", folder, env)) as played:
        _configure(folder / ".config" / "opencode", played.port)
        with running(Server(daemon, "/api/health", app, env)) as one:
            token = (folder / "state" / "token").read_text().strip()
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            house = Face(one.port, headers)
            project = house.ask("POST", "/api/projects", {"path": str(app)})
            agent = house.ask("POST", f"/api/workspaces/{_id_of(project)}/@main/agent/start")
            yield Stage(house, Face(agent["port"], _basic(agent["pid"])), app, one.pid)


def _id_of(project: Any) -> str:
    return project.get("id") or project["project"]["id"]


def _basic(pid: int) -> dict[str, str]:
    password = psutil.Process(pid).environ()["OPENCODE_SERVER_PASSWORD"]
    pair = base64.b64encode(f"opencode:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}", "Content-Type": "application/json"}


def _configure(folder: Path, port: int) -> None:
    """The user's own OpenCode config: one model, and no plugin package to be fetched."""
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
