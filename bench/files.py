"""The cost of the file tools in a large tree, against git, a response of the same size, and a shell."""

import asyncio
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Generator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import psutil
import uvloop

from rookery.files import read
from rookery.files.context.engine import ProjectContext
from rookery.files.context.sources import build_gatherers
from rookery.files.gitignore import TrackedCache
from rookery.files.just.run import JustRunner
from rookery.files.read import FileContent
from rookery.files.sandbox import SandboxRoot
from rookery.files.secrets import DenyRules
from rookery.files.walk import FolderScanner
from rookery.system.git import Git
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from rookery.wire.protocol.provider import Call

from .crowds import crowd
from .harness import Bar, Sample, ratio, take_turns, user_environment
from .loads import ERAS, MODERN, Load, measure_calls, open_load
from .peers.files import toolset
from .servers import Running, Server, running

_TOKEN = "the-token-of-this-bench"
_NAMES, _FOLDERS, _FILES = ("package", "module", "part"), (10, 10, 20), 25
_MANY = [*(str(number) for number in range(490)), *(f"{number}.log" for number in range(10))]
# The generated files and the folders above them, the large folder, and one text file.
_ENTRIES = 50_000 + 2_110 + 491 + 1
_TEXT_BYTES, _LARGE_BYTES = 10_000, 2 * 10**9
_CLIENTS, _CALLS, _READERS = 16, 600, 4
_PERSON = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgSign=false", "-c", "gc.auto=0")
_PEER = Path(__file__).parent / "peers" / "files.py"
# The git commands that the gatherers of the context run.
_CONTEXT = (
    "git status --short --branch --untracked-files=normal --no-renames",
    "git diff --no-ext-diff --no-textconv --no-color --stat=100 --stat-count=60 HEAD --",
    "git log --max-count=15 --no-color --no-show-signature --date=short '--format=%h %ad %an: %s'",
    "git diff --no-ext-diff --name-only --no-renames --diff-filter=d -z HEAD --",
    "git ls-files --others --exclude-standard -z",
    "git ls-files --cached --others --exclude-standard --deduplicate -z",
)
_CURSOR = re.compile(rb'"next_cursor":(null|"[^"]*")}}$')


def run() -> list[Bar]:
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder:
        tree = _tree(Path(folder) / "tree")
        figures = (list_all, list_one, gather_context, read_text, read_large, crowd)
        return [bar for figure in figures for bar in figure(tree)]


def list_all(tree: Path) -> list[Bar]:
    """List all pages of the whole tree, with names and types.

    Also printed: a first listing without any cache, and one with sizes, which git does not read.
    """

    async def pages(tools: Tools, **options: Any) -> None:
        cursor, left = None, _ENTRIES
        while left > 0:
            page = await tools.call("list_directory", path=".", depth=64, cursor=cursor, **options)
            left -= page.count(b'{"path":') - 1
            cursor = json.loads(_CURSOR.findall(page)[0])
            if (cursor is None) != (left == 0):
                raise RuntimeError(f"{left} entries are missing")

    with _measuring(tree) as measure:
        targets = {
            "git": lambda: _ran(["git", "ls-files", "-co", "--exclude-standard"], tree),
            "pages": lambda: measure(lambda tools: pages(tools, sizes=False)),
            "long pages": lambda: measure(lambda tools: pages(tools, sizes=False, limit=10_000)),
            "first pages": lambda: measure(lambda tools: pages(tools.anew(), sizes=False, limit=10_000)),
            "sizes": lambda: measure(lambda tools: pages(tools, limit=10_000)),
        }
        results = take_turns(targets, rounds=9, repeats=2)
    for name in ("first pages", "sizes"):
        ratio(results, name, "git", "cpu")
    ratios = {
        figure: max(ratio(results, name, "git", figure) for name in ("pages", "long pages"))
        for figure in ("cpu", "seconds")
    }
    return [Bar(f"files.list.{figure}", value, "<=", 2.0) for figure, value in ratios.items()]


def list_one(tree: Path) -> list[Bar]:
    """List one folder in which git determines what is ignored."""
    names = "\0".join(_MANY).encode() + b"\0"
    with _measuring(tree) as measure:
        targets = {
            "git": lambda: _ran(["git", "check-ignore", "-z", "--stdin"], tree / "many", names),
            "folder": lambda: measure(lambda tools: tools.call("list_directory", path="many")),
        }
        results = take_turns(targets, rounds=9, repeats=3)
    ratios = {figure: ratio(results, "folder", "git", figure) for figure in ("cpu", "seconds")}
    return [Bar(f"files.folder.{figure}", value, "<=", 2.0) for figure, value in ratios.items()]


def gather_context(tree: Path) -> list[Bar]:
    """Gather the context of a changed tree, against the same git commands run at once."""
    for number in range(5):
        (tree / "package00" / "module00" / "part00" / f"source_{number:05}.py").write_text("changed\n")
        (tree / "package00" / f"new{number}").write_text("new\n")
    at_once = " & ".join(f"{command} >/dev/null" for command in _CONTEXT)
    shell = ["sh", "-c", f"export GIT_OPTIONAL_LOCKS=0; {at_once} & wait"]
    with _measuring(tree) as measure:
        targets = {
            "shell": lambda: _ran(shell, tree),
            "context": lambda: measure(lambda tools: tools.context()),
        }
        results = take_turns(targets, rounds=9, repeats=2)
    ratios = {figure: ratio(results, "context", "shell", figure) for figure in ("cpu", "seconds")}
    return [Bar(f"files.context.{figure}", value, "<=", 1.5) for figure, value in ratios.items()]


def read_text(tree: Path) -> list[Bar]:
    """Read a file over the wire, against an echo of the same text. Also printed: a tool that has the text in memory."""
    text = (tree / "text").read_text()
    arguments = {"read_file": {"path": "text"}, "echo": {"text": text}, "same": dict[str, str]()}
    wanted = {
        f"{name} {era}": (era, json.dumps({"name": name, "arguments": arguments_, "expected": text[:40]}))
        for era in ERAS
        for name, arguments_ in arguments.items()
    }
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_serving(tree))
        loads = {
            name: stack.enter_context(open_load(server, era, _CLIENTS, _TOKEN, tool))
            for name, (era, tool) in wanted.items()
        }
        results = take_turns(measure_calls(loads, _CALLS), rounds=9, repeats=3)
    for era in ERAS:
        ratio(results, f"read_file {era}", f"same {era}", "cpu")
    worst = max(ratio(results, f"read_file {era}", f"echo {era}", "cpu") for era in ERAS)
    return [Bar("files.read.cpu", worst, "<=", 1.5)]


def read_large(tree: Path) -> list[Bar]:
    """Measure the additional memory of a server while a large file is read at both ends, by several clients at once."""
    line = b"x" * 999 + b"\n"
    with (tree / "large").open("wb") as file:
        for _ in range(_LARGE_BYTES // len(line) // 1000):
            file.write(line * 1000)
    last = _LARGE_BYTES // len(line)
    beginning = {"name": "read_file", "arguments": {"path": "large"}, "expected": "continue with first_line"}
    end = {"name": "read_file", "arguments": {"path": "large", "first_line": last - 9}, "expected": "xxx"}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_serving(tree))
        wanted = {
            "beginning": (beginning, 1),
            "end": (end, 1),
            "beginnings": (beginning, _READERS),
            "ends": (end, _READERS),
        }
        loads = {
            name: stack.enter_context(open_load(server, MODERN, clients, _TOKEN, json.dumps(tool)))
            for name, (tool, clients) in wanted.items()
        }
        # Allocate first what is allocated once, such as threads.
        _read_all(loads)
        before = psutil.Process(server.pid).memory_info().rss
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")
        _read_all(loads)
        status = Path(f"/proc/{server.pid}/status").read_text()
    (tree / "large").unlink()
    peak = int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024
    print(f"read_large: {before / 1e6:.1f} MB before, {peak / 1e6:.1f} MB at most", flush=True)
    return [Bar("files.large.megabytes", (peak - before) / 1e6, "<=", 5.0)]


def _read_all(loads: dict[str, Load]) -> None:
    for name, load in loads.items():
        load.call(_READERS if name.endswith("s") else 1)


class Tools:
    """The file tools in this process, and the cost of their calls, with the git processes that they start."""

    def __init__(self, root: SandboxRoot, spawner: Spawner) -> None:
        self._toolset = toolset(root, "")
        self._context = ProjectContext(build_gatherers(root.path, Git(spawner), JustRunner(spawner), self._read))
        self._root = root
        self.spent: Sample = {}

    async def _read(self, path: str, most: int) -> FileContent:
        return await read.read_content(self._root, path, max_bytes=most)

    def anew(self) -> "Tools":
        self._root.tracked, self._root.folders, self._root.deny_rules = TrackedCache(), FolderScanner(), DenyRules()
        return self

    async def call(self, tool: str, **arguments: Any) -> bytes:
        """Call a tool, and return the encoded result."""
        params = {"name": tool, "arguments": msgspec.Raw(msgspec.json.encode(arguments))}
        call = cast(Call, SimpleNamespace(method="tools/call", meta={}, session=None))
        with self._counted():
            return msgspec.json.encode(await self._toolset.handle(call, params))

    async def context(self) -> None:
        with self._counted():
            await self._context.get()

    async def close(self) -> None:
        await self._context.close()

    @contextlib.contextmanager
    def _counted(self) -> Generator[None]:
        cpu, began = _cpu(), time.perf_counter()
        yield
        self.spent = {
            "cpu": self.spent.get("cpu", 0) + _cpu() - cpu,
            "seconds": self.spent.get("seconds", 0) + time.perf_counter() - began,
        }


@contextlib.contextmanager
def _measuring(tree: Path) -> Generator[Callable[[Callable[[Tools], Coroutine[Any, Any, object]]], Sample]]:
    """Yield a function that measures calls of the tools, all on one loop and with one root, as in a daemon."""
    spawner = Spawner(new_id())
    with SandboxRoot(tree) as root, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        tools = Tools(root, spawner)

        def measure(work: Callable[[Tools], Coroutine[Any, Any, object]]) -> Sample:
            tools.spent = {}
            runner.run(work(tools))
            return tools.spent

        try:
            yield measure
        finally:
            runner.run(tools.close())
            runner.run(spawner.stop_all())


@contextlib.contextmanager
def _serving(tree: Path) -> Generator[Running]:
    argv = [sys.executable, "-P", str(_PEER), "{port}", _TOKEN, str(tree), str(tree / "text")]
    with running(Server(argv, "/api/health", tree, user_environment(tree.parent))) as server:
        yield server


def _ran(argv: list[str], folder: Path, stdin: bytes = b"") -> Sample:
    cpu, began = _cpu(), time.perf_counter()
    ran = subprocess.run(argv, cwd=folder, input=stdin, stdout=subprocess.DEVNULL, timeout=600, check=False)
    if ran.returncode not in (0, 1):
        raise subprocess.CalledProcessError(ran.returncode, argv)
    return {"cpu": _cpu() - cpu, "seconds": time.perf_counter() - began}


def _cpu() -> float:
    """Return the CPU time of this process and of all children that it has waited for."""
    used = [resource.getrusage(scope) for scope in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _tree(path: Path) -> Path:
    """Create a repository of 50,000 files in folders of 25, one folder with many files, and one text file."""
    number = 0
    for position in product(*(range(count) for count in _FOLDERS)):
        folder = path.joinpath(*(f"{name}{index:02}" for name, index in zip(_NAMES, position, strict=True)))
        folder.mkdir(parents=True)
        for _ in range(_FILES):
            (folder / f"source_{number:05}.py").write_text(f"{number}\n")
            number += 1
    (path / "many").mkdir()
    for name in _MANY:
        (path / "many" / name).touch()
    (path / "text").write_text("".join(f"{line:05} {'text ' * 12}\n" for line in range(_TEXT_BYTES))[:_TEXT_BYTES])
    (path / ".gitignore").write_text("*.log\nbuild/\nnode_modules/\n__pycache__/\n/large\n")
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "one"), ("status",)):
        subprocess.run(["git", *_PERSON, *words], cwd=path, check=True, stdout=subprocess.DEVNULL, timeout=600)
    return path.resolve()
