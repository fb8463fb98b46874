"""Fixtures for every test: a state folder and HOME of its own, and a check for leftover processes."""

import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest

from rookery.system.process.table import MARKER, read_marker
from tests.support.daemon.process import Daemon, rookery, up
from tests.support.opencode.shared import SharedOpenCode, start_shared_opencode
from tests.support.selection import needs_opencode
from tests.support.small_disk import SmallDisk, make_small_disk

# How long an example takes says more about the machine than about us.
hypothesis.settings.register_profile("rookery", deadline=None)
hypothesis.settings.load_profile("rookery")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need OpenCode, and start with those that may take longest.

    So no worker runs a long test alone at the end.
    """
    for item in items:
        if needs_opencode(item.path):
            item.add_marker(pytest.mark.opencode)
    items.sort(key=_may_take, reverse=True)


def _may_take(item: pytest.Item) -> float:
    """Return a test's own time limit, if it has one."""
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0]) if mark is not None else 0.0


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Hide the user's Rookery from each test, and fail a test whose processes outlive it."""
    mark, before = f"test-{uuid.uuid4().hex}", _list_pids()
    for name in [name for name in os.environ if name.startswith(("ROOKERY_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv(MARKER, mark)
    with tempfile.TemporaryDirectory(prefix="rk-") as folder:
        monkeypatch.setenv("HOME", str(Path(folder) / "home"))
        (Path(folder) / "home").mkdir()
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        monkeypatch.delenv("XDG_STATE_HOME", raising=False)
        monkeypatch.setenv("ROOKERY_HOME", str(Path(folder) / "state"))
        # Only tests that are about agents have OpenCode at hand, and want to wait for it.
        monkeypatch.setenv("ROOKERY_AGENTS_START", "use")
        for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
            monkeypatch.delenv(name, raising=False)
        yield
        left = _kill(_find_marked(mark, before)) + _find_zombies(before)
    if left:
        pytest.fail(f"processes left over by {request.node.name}: {left}")


@pytest.fixture
def state() -> Path:
    """The state folder of this test, created as the daemon creates it."""
    folder = Path(os.environ["ROOKERY_HOME"])
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon in the background. Its orderly stop is part of every test that uses it."""
    running = up()
    yield running
    done = rookery("down")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def shared_opencode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedOpenCode]:
    """The real OpenCode, started by the first test that needs it and stopped after the last."""
    with start_shared_opencode(tmp_path_factory.mktemp("opencode")) as running:
        yield running


@pytest.fixture
def small_disk(state: Path) -> SmallDisk:
    return make_small_disk(state / "disk")


def _list_pids() -> frozenset[int]:
    """Return all current pids. None of these processes carries the mark of a test that has not started."""
    return frozenset(psutil.pids())


def _find_marked(mark: str, before: frozenset[int]) -> list[psutil.Process]:
    """Return the running processes whose environment carries `mark`, except those in `before`."""
    found: list[psutil.Process] = []
    for pid in _list_pids() - before:
        try:
            if mark not in (read_marker(pid) or ""):
                continue
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _find_zombies(before: frozenset[int]) -> list[str]:
    """Return the children that nobody has waited for after 5 seconds, except those in `before`."""
    deadline = time.monotonic() + 5
    while True:
        left = [pid for pid in _children() - before if _is_zombie(pid)]
        if not left or time.monotonic() > deadline:
            return [f"{pid} (zombie)" for pid in left]
        time.sleep(0.01)


def _children() -> frozenset[int]:
    threads = Path("/proc/self/task")
    return frozenset(int(pid) for thread in threads.iterdir() for pid in _read(thread / "children").split())


def _is_zombie(pid: int) -> bool:
    return _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[:1] == ["Z"]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _kill(processes: list[psutil.Process]) -> list[str]:
    """Kill the processes, and return the pid and command line of each."""
    killed: list[str] = []
    for process in processes:
        try:
            killed.append(f"{process.pid} {' '.join(process.cmdline())}")
            process.kill()
        except psutil.Error:
            continue
    psutil.wait_procs(processes, timeout=10)
    return killed
