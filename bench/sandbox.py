"""The cost of a sandbox: starting and calling a confined MCP server, and ordinary work in a confined workspace."""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from rookery.system.confinement.kernel import require_support, run_confined
from rookery.system.confinement.locations import SandboxOptions
from rookery.system.confinement.policy import ConfinementPolicy
from rookery.system.ids import new_id
from rookery.system.process.environment import allowed_environment
from rookery.system.process.spawn import Spawner
from rookery.upstreams.config.definition import Definition, ServerSandbox, Source
from rookery.upstreams.sandbox import CheckoutAccess, ServerSandboxes
from rookery.wire.client.client import Client, Timeouts
from rookery.wire.client.connect import connect_client
from rookery.wire.client.encode import ClientIdentity
from rookery.wire.client.stdio import ServerProgram, StdioTransport
from rookery.wire.client.transport import ClientTransport
from rookery.workspaces.confinement import WorkspaceSandboxes, list_checkout_paths
from rookery.workspaces.lookup import LocatedWorkspace
from rookery.workspaces.model import Workspace
from rookery.workspaces.projects import Project
from rookery.workspaces.worktrees import Worktree

from .harness import Bar, Sample, cpu_so_far, ratio, take_turns, typical, user_environment

_SERVER = [sys.executable, str(Path(__file__).parent / "peers" / "echo.py"), "stdio", "1"]
_SOURCE = Source("mcp.json", 1, "rookery", "user")
_CALLS = 500
_PERSON = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgSign=false")
_FILES, _PACKAGES, _PACKAGE_FILES, _TESTS = 10_000, 40, 25, 150
SandboxFiles = Literal["off", "workspace"]
_MODES: tuple[SandboxFiles, ...] = ("off", "workspace")
# A start may cost this times an unconfined one, and 10 ms more.
_SERVER_START = 1.1
_WORK = 1.05


def run() -> list[Bar]:
    require_support()
    with tempfile.TemporaryDirectory(prefix="rookery-bench-") as name:
        folder = Path(name).resolve()
        env = user_environment(folder / "home")
        checkout = _make_checkout(folder, env)
        return [*measure_server(folder, checkout), *measure_work(folder, checkout, env)]


def measure_server(folder: Path, checkout: LocatedWorkspace) -> list[Bar]:
    """Compare a confined server with the same server: the CPU of a start, of the daemon and child, and of a call."""
    path, main = checkout.workspace.path, Path(checkout.workspace.project.path)

    def find_access(base: Path) -> CheckoutAccess:
        paths = list_checkout_paths(base, main)
        return CheckoutAccess(paths.write, paths.linkless, paths.read)

    sandboxes = ServerSandboxes(
        folder / "state", SandboxOptions(), "off", "off", unconfined_allowed=False, find_access=find_access
    )

    def build(mode: SandboxFiles) -> ServerProgram:
        """Return the program as the daemon does before each start."""
        definition = Definition(
            name="echo", kind="local", source=_SOURCE, command=tuple(_SERVER), sandbox=ServerSandbox(files=mode)
        )
        env = allowed_environment()
        confined = sandboxes.make(definition, path, env)
        policy = confined.policy if confined is not None else None
        return ServerProgram(
            "echo", _SERVER, path, confined.environment if confined is not None else env, confinement=policy
        )

    async def measure(mode: SandboxFiles) -> Sample:
        before = _spent()
        spawner = Spawner(new_id())
        client = await _connect(StdioTransport(spawner, build(mode)))
        child = next(iter(spawner.children))
        start = _spent() - before + cpu_so_far(child.pid)
        before = _spent() + cpu_so_far(child.pid)
        for _ in range(_CALLS):
            await client.call_tool("echo", {"text": "hello"})
        call = (_spent() + cpu_so_far(child.pid) - before) / _CALLS
        await client.close()
        await spawner.stop_all()
        return {"start": start, "call": call}

    def run_once(mode: SandboxFiles) -> Sample:
        return asyncio.run(measure(mode))

    targets = {mode: partial(run_once, mode) for mode in _MODES}
    results = take_turns(targets, rounds=15, repeats=3)
    ratio(results, "workspace", "off", "start")
    more = typical(results, "workspace", "start") - _SERVER_START * typical(results, "off", "start")
    return [
        Bar("sandbox.server.start_ms", more * 1000, "<=", 10.0),
        Bar("sandbox.server.call", ratio(results, "workspace", "off", "call"), "<=", _WORK),
    ]


async def _connect(transport: StdioTransport) -> Client:
    def make(transport: ClientTransport) -> Client:
        return Client(transport, ClientIdentity({"name": "bench", "version": "1"}), Timeouts())

    return (await connect_client(make, transport))[0]


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure_work(folder: Path, checkout: LocatedWorkspace, env: Mapping[str, str]) -> list[Bar]:
    """Compare `git status`, `npm ci` and a test run in a confined workspace with the same outside of its sandbox."""
    sandbox = WorkspaceSandboxes(folder / "state", SandboxOptions()).make(checkout, "workspace", env)
    assert sandbox is not None
    # The same folders on both sides: only the kernel's checks differ.
    env = {**env, **sandbox.variables, "npm_config_update_notifier": "false", "PYTHONDONTWRITEBYTECODE": "1"}
    path = checkout.workspace.path
    commands = {
        "status": (["git", "status", "--porcelain"], 20, 10),
        "npm_ci": (["npm", "ci", "--offline", "--ignore-scripts", "--no-audit", "--no-fund"], 8, 1),
        "tests": ([sys.executable, "-m", "unittest", "-q", "test_bench"], 10, 2),
    }
    bars: list[Bar] = []
    for name, (argv, rounds, repeats) in commands.items():

        def measure(policy: ConfinementPolicy | None, name: str = name, argv: Sequence[str] = argv) -> Sample:
            return {name: _cpu_of(argv, path, env, policy)}

        targets = {"free": partial(measure, None), "confined": partial(measure, sandbox.policy)}
        results = take_turns(targets, rounds=rounds, repeats=repeats)
        bars.append(Bar(f"sandbox.{name}", ratio(results, "confined", "free", name), "<=", _WORK))
    return bars


def _cpu_of(argv: Sequence[str], cwd: Path, env: Mapping[str, str], policy: ConfinementPolicy | None) -> float:
    """Return the CPU seconds of a command and of all that it waited for."""

    def start() -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    process = start() if policy is None else run_confined(policy, start, lambda started: started.pid)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv)
    return used.ru_utime + used.ru_stime


def _make_checkout(folder: Path, env: Mapping[str, str]) -> LocatedWorkspace:
    """Make a repository with files, packages and tests, and a workspace of it."""
    app, path = folder / "app", folder / "fix"
    (folder / "home").mkdir()
    (folder / "state").mkdir()
    for number in range(_FILES):
        file = app / "src" / f"d{number % 400}" / f"f{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number}\n")
    _write_packages(app, env)
    (app / ".gitignore").write_text("node_modules\n")
    (app / "test_bench.py").write_text(
        "import pathlib, subprocess, tempfile, unittest\n"
        "class Tests(unittest.TestCase):\n    pass\n"
        "def check(self):\n    with tempfile.TemporaryDirectory() as folder:\n"
        "        for number in range(10):\n            (pathlib.Path(folder) / str(number)).write_text('x')\n"
        "        self.assertEqual(len(list(pathlib.Path(folder).iterdir())), 10)\n"
        f"for number in range({_TESTS}):\n    setattr(Tests, f'test_{{number}}', check)\n"
        "class Programs(unittest.TestCase):\n    def test(self):\n"
        "        for _ in range(20):\n            subprocess.run(['git', 'rev-parse', 'HEAD'], check=True, stdout=-3)\n"
    )
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "x")):
        subprocess.run(["git", *_PERSON, *words], cwd=app, env=env, check=True)
    subprocess.run(["git", "worktree", "add", "-q", "-b", "fix", str(path)], cwd=app, env=env, check=True)
    workspace = Workspace(Project("app-1", "app", str(app)), "fix", path, "fix", False, "ready")
    return LocatedWorkspace(workspace, Worktree(path), app / ".git" / "worktrees" / "fix")


def _write_packages(app: Path, env: Mapping[str, str]) -> None:
    """Write packages as archives, and a lock file that installs them without network."""
    dependencies: dict[str, str] = {}
    for number in range(_PACKAGES):
        source = app.parent / "packages" / f"p{number}"
        source.mkdir(parents=True)
        (source / "package.json").write_text(json.dumps({"name": f"p{number}", "version": "1.0.0"}))
        for file in range(_PACKAGE_FILES):
            (source / f"f{file}.js").write_text(f"module.exports = {file};\n" * 40)
        dependencies[f"p{number}"] = f"file:vendor/p{number}-1.0.0.tgz"
    (app / "vendor").mkdir()
    sources = [str(app.parent / "packages" / f"p{number}") for number in range(_PACKAGES)]

    def run_npm(folder: Path, *words: str) -> None:
        subprocess.run(["npm", *words, "--silent"], cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)

    run_npm(app / "vendor", "pack", *sources)
    (app / "package.json").write_text(json.dumps({"name": "app", "version": "1.0.0", "dependencies": dependencies}))
    run_npm(app, "install", "--package-lock-only", "--offline", "--no-audit", "--no-fund")
