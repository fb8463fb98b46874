"""Creating files in an open folder: complete or absent, and replacing others only on request."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.system.fs.atomic import write_beneath


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    handle = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield handle
    os.close(handle)


def test_a_new_file_is_there_whole_and_nothing_else_is(folder: int, tmp_path: Path) -> None:
    write_beneath(folder, "one", b"data", replace=False)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"one": b"data"}


@pytest.mark.parametrize("links", [True, False])
def test_nothing_is_written_over_unless_that_is_wanted(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def unable(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "this filesystem has no second names")

    (tmp_path / "one").write_bytes(b"before")
    if not links:
        monkeypatch.setattr(os, "link", unable)
    with pytest.raises(FileExistsError):
        write_beneath(folder, "one", b"data", replace=False)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"one": b"before"}
    write_beneath(folder, "one", b"data", replace=True)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"one": b"data"}


def test_a_folder_that_was_moved_is_still_the_one_that_is_written_in(folder: int, tmp_path: Path) -> None:
    moved = tmp_path.with_name(f"{tmp_path.name}-moved")
    tmp_path.rename(moved)
    tmp_path.mkdir()
    write_beneath(folder, "one", b"data", replace=False)
    assert (moved / "one").read_bytes() == b"data"
    assert not list(tmp_path.iterdir())
