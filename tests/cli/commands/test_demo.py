"""`rookery demo` when a step fails or the user interrupts it: nothing is left."""

import json
import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rookery.system.fs.lock import is_held
from tests.support.daemon.foreground import wait_for_line
from tests.support.daemon.process import ROOKERY, SECONDS, alive
from tests.support.requirements import requirement

pytestmark = requirement("kit.demo.tour")

# It can tell its version, and otherwise does what the test says.
_OPENCODE = """#!/bin/sh
[ "$1" = --version ] && echo 1.18.33 && exit
{}
"""


@pytest.fixture
def temporary() -> Path:
    """Where the demo makes its folder; a socket in it has to have a short path."""
    folder = Path(os.environ["HOME"]).parent / "t"
    folder.mkdir()
    return folder


def environment(temporary: Path, opencode: str | None) -> dict[str, str]:
    programs = temporary.parent / "bin"
    programs.mkdir(exist_ok=True)
    if opencode is None:
        (programs / "opencode").unlink(missing_ok=True)
    else:
        (programs / "opencode").write_text(_OPENCODE.format(opencode))
        (programs / "opencode").chmod(0o755)
    search = os.pathsep.join([str(programs), "/usr/bin", "/bin"])
    own = {"TMPDIR": str(temporary), "ROOKERY_AGENTS_VERSION": "path", "PATH": search}
    return {**os.environ, **own}


def demo(temporary: Path, opencode: str | None, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOKERY, "demo", "--once", *words],
        env=environment(temporary, opencode),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@contextmanager
def under_way(temporary: Path, *words: str) -> Generator["subprocess.Popen[bytes]"]:
    """A demo whose agents never come to listen, at the step that waits for them."""
    process = subprocess.Popen(
        [ROOKERY, "demo", *words],
        env=environment(temporary, "exec sleep 1000"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stderr is not None
            wait_for_line(process.stderr.fileno(), b"Two workspaces")
            wait_for_line(process.stderr.fileno(), b"add-farewell: a worktree")
            yield process
        finally:
            process.kill()


def test_without_opencode_it_says_so_and_makes_nothing(temporary: Path) -> None:
    done = demo(temporary, None)
    assert done.returncode == 1
    assert "rookery: OpenCode path: there is no opencode on PATH" in done.stderr
    assert list(temporary.iterdir()) == []


def test_a_failed_step_is_named_with_reason_and_logs_and_the_rest_is_removed(temporary: Path) -> None:
    done = demo(temporary, "echo broken; exit 3", "--json")
    assert done.returncode == 1
    assert done.stdout == ""
    error = json.loads(done.stderr)["error"]
    assert error["message"].startswith("Two workspaces, with an agent in each: ")
    (logs,) = temporary.iterdir()
    assert str(logs) in error["remedy"]
    assert "daemon.jsonl" in {one.name for one in logs.iterdir()}


def test_ctrl_c_in_the_middle_ends_it_all_also_where_two_run_at_once(temporary: Path) -> None:
    with under_way(temporary) as one, under_way(temporary, "--keep") as other:
        assert len(list(temporary.iterdir())) == 2
        os.killpg(one.pid, signal.SIGINT)
        assert one.wait(SECONDS) == 130
        (kept,) = temporary.iterdir()
        other.terminate()
        assert other.wait(SECONDS) == 143
    # No later demo takes it for one that was killed.
    assert (kept / "greeter" / "greet.py").is_file() and not (kept / "demo.lock").exists()
    assert not is_held(kept / "state" / "daemon.lock")


def test_a_second_ctrl_c_forces_the_end(temporary: Path) -> None:
    with under_way(temporary) as process:
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        wait_for_line(process.stderr.fileno(), b"Stopping and removing everything")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
    assert list(temporary.iterdir()) == []


def test_what_a_killed_demo_left_behind_is_ended_by_the_next_one(temporary: Path) -> None:
    with under_way(temporary) as process:
        (folder,) = temporary.iterdir()
        process.kill()
        process.wait(SECONDS)
        pid = json.loads((folder / "state" / "daemon.json").read_text())["pid"]
        assert alive(pid)
        assert demo(temporary, None).returncode == 1
        assert not alive(pid)
    assert list(temporary.iterdir()) == []
