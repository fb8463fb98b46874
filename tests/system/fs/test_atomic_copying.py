"""Copies between folders with untrusted content."""

import os
from pathlib import Path, PurePath

import pytest

from rookery.system.fs.atomic import copy_beneath


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    return tmp_path / "from", tmp_path / "to"


def test_a_file_is_copied_with_its_mode_and_its_folders(folders: tuple[Path, Path]) -> None:
    source, target = folders
    (source / "a" / "b").mkdir(parents=True)
    (source / "a" / "b" / "c").write_bytes(b"x" * 3_000_000)
    (source / "a" / "b" / "c").chmod(0o750)
    assert copy_beneath(source, target, PurePath("a/b/c"))
    assert (target / "a" / "b" / "c").read_bytes() == b"x" * 3_000_000
    assert (target / "a" / "b" / "c").stat().st_mode & 0o777 == 0o750
    assert [one.name for one in (target / "a" / "b").iterdir()] == ["c"]


def test_what_is_there_stays(folders: tuple[Path, Path]) -> None:
    source, target = folders
    for name in ("file", "link"):
        (source / name).write_text("new")
    (target / "file").write_text("old")
    (target / "link").symlink_to("nowhere")
    assert not copy_beneath(source, target, PurePath("file"))
    assert not copy_beneath(source, target, PurePath("link"))
    assert (target / "file").read_text() == "old"
    assert sorted(one.name for one in target.iterdir()) == ["file", "link"]


@pytest.mark.parametrize("name", ["../x", "/etc/hostname", "folder/x", "up", "absolute", "pipe", "absent"])
def test_what_leads_out_or_is_no_file_is_refused(folders: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    source, target = folders
    (tmp_path / "x").write_text("secret")
    (source / "folder").symlink_to(tmp_path)
    (source / "up").symlink_to("../x")
    (source / "absolute").symlink_to(tmp_path / "x")
    os.mkfifo(source / "pipe")
    with pytest.raises(OSError):
        copy_beneath(source, target, PurePath(name))
    assert not list(target.rglob("*"))


def test_a_link_in_the_target_is_not_followed(folders: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = folders
    (tmp_path / "outside").mkdir()
    (target / "folder").symlink_to(tmp_path / "outside")
    (source / "folder").mkdir()
    (source / "folder" / "x").write_text("x")
    with pytest.raises(OSError):
        copy_beneath(source, target, PurePath("folder/x"))
    assert not list((tmp_path / "outside").iterdir())
