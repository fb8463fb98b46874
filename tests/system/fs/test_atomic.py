"""Atomic writes: a file is complete or unchanged."""

import errno
import os
from pathlib import Path, PurePath

import pytest

from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import (
    append_line,
    read_beneath,
    read_plain,
    read_secret,
    remove_file,
    write_atomic,
    write_secret,
)
from tests.support.small_disk import SmallDisk


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_new_file_has_the_content_and_the_mode_asked_for(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", b"one", mode=0o640)
    assert (tmp_path / "a").read_bytes() == b"one"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o604)
    write_atomic(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o604


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_atomic(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_e13_a_failing_call_is_told_and_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def fail(*args: object) -> None:
        raise OSError(errno.EIO, "disk on fire")

    if failing == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk on fire"):
        write_atomic(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == {"a"}


def test_e12_a_full_disk_leaves_the_old_file_and_no_other(small_disk: SmallDisk) -> None:
    """The disk is real: a tmpfs of 2 MB in a mount namespace of its own."""
    told = small_disk.run(
        """
        import errno, os
        from rookery.system.fs.atomic import write_atomic
        write_atomic(disk / "a", b"old")
        try:
            write_atomic(disk / "a", b"x" * 3_000_000)
        except OSError as error:
            print(errno.errorcode[error.errno])
        print((disk / "a").read_bytes(), sorted(os.listdir(disk)))
        write_atomic(disk / "a", b"new")
        print((disk / "a").read_bytes())
        """
    )
    assert told == ["ENOSPC", "b'old' ['a']", "b'new'"]


def test_a_secret_is_for_the_owner_alone(tmp_path: Path) -> None:
    write_secret(tmp_path / "s", b"hush")
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600
    assert read_secret(tmp_path / "s") == b"hush"
    assert read_secret(tmp_path / "none") is None


def test_a_secret_is_neither_written_nor_read_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "public").write_bytes(b"mine")
    (tmp_path / "s").symlink_to("public")
    with pytest.raises(RookeryError) as caught:
        write_secret(tmp_path / "s", b"hush")
    assert caught.value.code == "unsafe-file"
    with pytest.raises(RookeryError):
        read_secret(tmp_path / "s")
    assert (tmp_path / "public").read_bytes() == b"mine"


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o604])
def test_a_secret_that_others_may_use_is_not_taken(tmp_path: Path, mode: int) -> None:
    (tmp_path / "s").write_bytes(b"hush")
    (tmp_path / "s").chmod(mode)
    with pytest.raises(RookeryError) as caught:
        read_secret(tmp_path / "s")
    assert "is accessible to other users" in caught.value.message
    assert str(tmp_path / "s") in caught.value.remedy


def test_a_pipe_in_place_of_a_secret_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "s", 0o600)
    with pytest.raises(RookeryError, match="not a regular file"):
        read_secret(tmp_path / "s")


def test_removing_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    remove_file(tmp_path / "a")
    remove_file(tmp_path / "a")
    assert not names(tmp_path)


def test_what_lies_in_a_folder_is_read_and_nothing_that_a_link_or_a_path_leads_to(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "file").write_bytes(b"mine")
    (tmp_path / "out").write_bytes(b"not mine")
    (tmp_path / "in" / "file").symlink_to("../out")
    (tmp_path / "in" / "folder").symlink_to("deep")
    folder = tmp_path / "in"
    assert read_beneath(folder, PurePath("deep/file"), 4) == b"mine"
    for name, told in [
        ("file", "file is a symbolic link"),
        ("folder/file", "folder is a symbolic link"),
        ("../out", "not in the folder"),
        (str(tmp_path / "out"), "not in the folder"),
        (".", "not in the folder"),
        ("deep", "not a regular file"),
    ]:
        with pytest.raises(OSError, match=told):
            read_beneath(folder, PurePath(name), 100)


def test_what_is_too_large_or_no_file_is_not_read_and_no_descriptor_stays_open(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    os.mkfifo(tmp_path / "pipe")
    before = len(list(Path("/dev/fd").iterdir()))
    assert read_plain(tmp_path / "a", 5) == b"12345"
    for name in ("a", "pipe", "."):
        with pytest.raises(OSError, match="not a regular file of at most 4 bytes"):
            read_plain(tmp_path / name, 4)
    for name in ("a", "pipe"):
        with pytest.raises(OSError, match="not a regular file of at most 4 bytes"):
            read_beneath(tmp_path, PurePath(name), 4)
    for name in ("none", "a/none"):
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            read_beneath(tmp_path, PurePath(name), 4)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_lines_are_appended_to_a_private_file_that_is_rotated_when_full(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit.log"
    for number in range(3):
        append_line(path, f"line {number} \udcff", max_bytes=20)
    assert path.read_text() == "line 2 \\udcff\n" and path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "audit.log.1").read_text() == "line 0 \\udcff\nline 1 \\udcff\n"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        append_line(path, "led astray")
    assert not (tmp_path / "elsewhere").exists()
