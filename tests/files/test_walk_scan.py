"""The entries of an open folder, read at once and one by one."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rookery.files.walk import FolderScanner, scan_folder
from rookery.system.fs import beneath


@contextmanager
def opened(folder: Path) -> Generator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield handle
    finally:
        os.close(handle)


def looked(folders: FolderScanner, folder: Path, least: str = "", most: int = 100, *, hidden: bool = True) -> object:
    with opened(folder) as handle:
        return folders.scan(handle, least, most, hidden=hidden, is_nested=False)


def one_by_one(folder: Path, least: str = "", most: int = 100, *, hidden: bool = True) -> object:
    with opened(folder) as handle:
        return scan_folder(handle, least, most, hidden=hidden, is_nested=False)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A folder with one of each kind."""
    folder = tmp_path / "odd"
    (folder / "folder").mkdir(parents=True)
    for name in ("a", ".hidden", "ü", "zz"):
        (folder / name).touch()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).touch()
    (folder / "link").symlink_to("folder")
    (folder / "broken").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "socket"))
    return folder


@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize(("least", "most"), [("", 100), ("b", 100), ("", 3), ("folder", 2)])
def test_both_ways_tell_the_same(odd: Path, least: str, most: int, hidden: bool) -> None:
    names, types, whole = scan_all(odd, least, most, hidden)
    assert (names, types, whole) == one_by_one(odd, least, most, hidden=hidden)
    assert whole == (len(names) < most)


def scan_all(folder: Path, least: str, most: int, hidden: bool) -> tuple[list[str], object, bool]:
    folders = FolderScanner()
    looked(folders, folder)
    with opened(folder) as handle:
        return folders.scan(handle, least, most, hidden=hidden, is_nested=False)


def test_what_was_remembered_is_not_told_once_the_folder_has_changed(odd: Path) -> None:
    folders = FolderScanner()
    before = looked(folders, odd)
    assert looked(folders, odd) == before
    (odd / "a").unlink()
    (odd / "a").symlink_to("zz")
    (odd / "new").touch()
    assert looked(folders, odd) == one_by_one(odd) != before


def test_who_takes_names_away_takes_them_from_nobody_else(odd: Path) -> None:
    folders = FolderScanner()
    with opened(odd) as handle:
        folders.scan(handle, "", 100, hidden=True, is_nested=False)[0].clear()
    assert looked(folders, odd) == one_by_one(odd)


def test_a_large_folder_is_told_whole(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"{number:04}").touch()
    folders = FolderScanner()
    assert looked(folders, tmp_path, most=5000) == one_by_one(tmp_path, most=5000)
    assert looked(folders, tmp_path, most=10) == one_by_one(tmp_path, most=10)


def test_an_empty_folder_holds_nothing(tmp_path: Path) -> None:
    assert looked(FolderScanner(), tmp_path) == ([], {}, True)


def test_of_a_repository_inside_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / ".git").touch()
    (tmp_path / "file").touch()
    folders = FolderScanner()
    for _ in range(2):
        with opened(tmp_path) as handle:
            assert folders.scan(handle, "", 100, hidden=True, is_nested=True) == ([], {}, True)


def test_where_the_kernel_cannot_be_asked_at_once_entries_are_looked_at(
    odd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = one_by_one(odd)
    monkeypatch.setattr(beneath, "_load_getdents", lambda: None)
    assert looked(FolderScanner(), odd) == wanted


def test_where_types_are_not_told_entries_are_looked_at(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = one_by_one(odd)
    # As a filesystem that has no types would tell of the folder in it.
    monkeypatch.setattr("rookery.files.walk.ENTRY_UNKNOWN", beneath.ENTRY_FOLDER)
    assert looked(FolderScanner(), odd) == wanted


def test_only_so_much_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.files.walk._MAX_CACHED_BYTES", 100)
    folders = FolderScanner()
    for number in range(20):
        (tmp_path / f"{number}").touch()
        looked(folders, tmp_path)
        assert len(folders) <= 2
