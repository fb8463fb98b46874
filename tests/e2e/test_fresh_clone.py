"""On a fresh machine `make up` does all set-up and serves, and Ctrl-C leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.support.driven import wait_for_line
from tests.support.requirements import requirement

ROOT = Path(__file__).parents[2]
NOT_THERE = {"VIRTUAL_ENV", "ROOKERY_HOME", "MAKEFLAGS", "MAKELEVEL"}


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


@requirement("house.start.fresh", "house.stop.ordered")
@pytest.mark.timeout(600)
def test_make_up_serves_from_a_fresh_clone_with_an_empty_home(clone: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    env = {name: value for name, value in os.environ.items() if name not in NOT_THERE}
    env["HOME"] = str(home)
    # Of all that is installed only what `make up` uses is compiled, when it is used.
    env["PIP_COMPILE"] = "0"
    env["PATH"] = os.pathsep.join(path for path in env["PATH"].split(os.pathsep) if ".venv" not in path)
    state = home / ".local" / "state" / "rookery"
    for _ in range(2):
        with subprocess.Popen(
            ["make", "up"], cwd=clone, env=env, stderr=subprocess.PIPE, start_new_session=True
        ) as made:
            assert made.stderr is not None
            try:
                wait_for_line(made.stderr.fileno(), b"up at", seconds=500)
                runtime = json.loads((state / "daemon.json").read_text())
                with urllib.request.urlopen(f"{runtime['url']}/api/health", timeout=30) as answer:
                    assert json.load(answer)["instance"] == runtime["instance"]
            finally:
                # What a terminal does on Ctrl-C: the signal goes to the whole group.
                os.killpg(made.pid, signal.SIGINT)
            wait_for_line(made.stderr.fileno(), b"daemon: stopped")
            made.wait(60)
        assert not (state / "daemon.json").exists()
        assert not (state / "rookery.sock").exists()
