"""A full disk, a read-only file system and a missing permission, detected from output or from the folder."""

from pathlib import Path

import pytest

from rookery.system.causes import explain_end, find_cause
from tests.support.requirements import requirement

pytestmark = requirement("house.error.disk-full")

NPM = """npm error code EACCES
npm error syscall mkdir
npm error Error: EACCES: permission denied, mkdir '/data/x'"""


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("write /data/x: No space left on device", "the disk is full: /data/x"),
        ("EROFS: read-only file system, open '/data/x'", "the file system is read-only: /data/x"),
        ("PermissionError: [Errno 13] Permission denied: '/data/x'", "Permission denied: /data/x"),
        (NPM, "Permission denied: /data/x"),
        # Where no path is printed, it is the first folder.
        ("database or disk is full", "the disk is full: /proc"),
    ],
)
def test_the_cause_is_read_from_what_a_program_printed(words: str, cause: str) -> None:
    found = find_cause(1, words, ("/proc", "/data"))
    assert found is not None and found.message == cause


def test_a_program_that_could_print_nothing_is_explained_by_its_folder(tmp_path: Path) -> None:
    """As where its output goes to a file on the same full disk. /proc can never be written to."""
    assert explain_end(1, "", (tmp_path, "/proc/1")) != "ended with 1"
    assert explain_end(-7, "words", (tmp_path, "/proc/1")).startswith("was killed by SIGBUS: ")
    assert explain_end(1, "words", (tmp_path, "/proc/1")) == "ended with 1"
    assert explain_end(1, "", (tmp_path,)) == "ended with 1"
