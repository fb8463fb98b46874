"""The lock that allows only one daemon."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rookery.system.fs.lock import FileLock, wait_until_free

HOLD = """
import sys
from pathlib import Path
from rookery.system.fs.lock import FileLock
lock = FileLock(Path(sys.argv[1]))
print(lock.acquire("the child"), flush=True)
sys.stdin.read()
"""


def holder(path: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "True\n"
    return process


def test_a_lock_is_held_once_and_names_its_holder(tmp_path: Path) -> None:
    with holder(tmp_path / "lock") as child:
        lock = FileLock(tmp_path / "lock")
        assert not lock.acquire("me")
        assert lock.read_note() == "the child"
        child.communicate()
        assert lock.acquire("me")
        assert not FileLock(tmp_path / "lock").acquire("me too")
        lock.release()
        assert FileLock(tmp_path / "lock").acquire("third")


def test_a_lock_whose_note_cannot_be_written_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    lock = FileLock(tmp_path / "lock")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left") as caught:
            lock.acquire("me")
    assert caught.value.filename == str(tmp_path / "lock")
    # Nothing is closed twice: the number may be another file's by now.
    with (tmp_path / "other").open("w") as other:
        lock.release()
        other.write("still open")
    assert lock.acquire("me") and lock.read_note() == "me"
    lock.release()


def test_d09_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with holder(tmp_path / "lock") as child:
        child.kill()
        child.wait(10)
    assert FileLock(tmp_path / "lock").acquire("me")


def test_waiting_for_a_lock_ends_when_it_is_freed_or_the_time_is_up(tmp_path: Path) -> None:
    assert wait_until_free(tmp_path / "none", 1)
    with holder(tmp_path / "lock") as child:
        assert not wait_until_free(tmp_path / "lock", 0.1)
        child.kill()
        assert wait_until_free(tmp_path / "lock", 30)


def test_a_lock_is_not_inherited_by_children(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    assert lock.acquire("me")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False) as child:
        lock.release()
        assert FileLock(tmp_path / "lock").acquire("again")
        child.communicate()
