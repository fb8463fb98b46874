"""On a fresh machine `make up` sets everything up and runs the demo, and Ctrl-C leaves nothing behind."""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.daemon.foreground import wait_for_line
from tests.support.daemon.process import SECONDS
from tests.support.requirements import requirement

# `make up` starts OpenCode.
pytestmark = pytest.mark.opencode

ROOT = Path(__file__).parents[2]
NOT_THERE = {"VIRTUAL_ENV", "ROOKERY_HOME", "MAKEFLAGS", "MAKELEVEL"}
# Programs that Rookery uses where they are installed, and does without where they are not.
NOT_INSTALLED = {
    *("node", "nodejs", "npm", "npx", "corepack", "bun", "opencode", "rg", "just", "uv", "uvx", "pipx", "docker"),
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files of this tree as git would hand them out, in a repository of their own."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, check=True, timeout=30)
    made = tmp_path / "rookery"
    for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
        if (ROOT / name).is_file():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, made / name)
    subprocess.run(["git", "init", "-q", str(made)], check=True, timeout=30)
    return made


def search_path(folder: Path) -> str:
    """A folder with the programs of this machine but those that a fresh one lacks."""
    folder.mkdir()
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        if ".venv" not in place.parts and place.is_dir():
            for program in place.iterdir():
                if program.name not in NOT_INSTALLED and not (folder / program.name).is_symlink():
                    (folder / program.name).symlink_to(program)
    return str(folder)


@contextmanager
def make_up(clone: Path, env: Mapping[str, str]) -> Generator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        ["make", "up"],
        cwd=clone,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as made:
        try:
            yield made
        finally:
            if made.poll() is None:
                os.killpg(made.pid, signal.SIGKILL)


def until(made: "subprocess.Popen[bytes]", wanted: bytes, seconds: float = SECONDS) -> str:
    assert made.stdout is not None
    return wait_for_line(made.stdout.fileno(), wanted, seconds).decode()


def interrupt(made: "subprocess.Popen[bytes]") -> None:
    """What a terminal does on Ctrl-C: the signal goes to the whole group. Returns when the last of it has ended."""
    os.killpg(made.pid, signal.SIGINT)
    made.communicate(timeout=SECONDS)


@requirement("house.start.fresh", "house.stop.ordered", "kit.demo.tour")
@pytest.mark.timeout(900)
def test_make_up_shows_two_agents_at_work_from_a_fresh_clone_with_an_empty_home(clone: Path) -> None:
    # The socket of a daemon has to have a short path.
    home, temporary = (Path(os.environ["HOME"]).parent / name for name in ("h", "t"))
    home.mkdir()
    temporary.mkdir()
    env = {name: value for name, value in os.environ.items() if name not in NOT_THERE}
    # Of all that is installed only what `make up` uses is compiled, when it is used.
    env |= {"HOME": str(home), "TMPDIR": str(temporary), "PIP_COMPILE": "0"}
    env["PATH"] = search_path(home.parent / "bin")
    assert shutil.which("make", path=env["PATH"]) and not shutil.which("node", path=env["PATH"])

    with make_up(clone, env) as made:
        told = until(made, b"agent login", seconds=800)
        program = clone / ".venv" / "bin" / "rookery"
        assert f"  {program} status" in told
        second = env | {"ROOKERY_HOME": re.findall(r"export ROOKERY_HOME=(\S+)", told)[0]}
        asked = subprocess.run([program, "status", "--json"], env=second, capture_output=True, timeout=60, check=True)
        status = json.loads(asked.stdout)
        agents = {one["name"]: one["agent"]["state"] for one in status["workspaces"] if not one["main"]}
        assert agents == {"fix-greeting": "running", "add-farewell": "running"}
        with urllib.request.urlopen(f"{status['daemon']['url']}/api/health", timeout=30) as answer:
            assert answer.status == 200
        interrupt(made)
    assert list(temporary.glob("rookery*")) == []
    # OpenCode stays, so that it is fetched once; nothing else of the demo does.
    assert {one.name for one in (home / ".local" / "state" / "rookery").iterdir()} == {"opencode"}

    with make_up(clone, env) as made:
        assert "Setting up" not in until(made, b"Two workspaces")
        interrupt(made)
    assert list(temporary.glob("rookery*")) == []
