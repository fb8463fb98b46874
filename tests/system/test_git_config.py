"""Nothing that a repository's config names is run, wherever its files say the config is."""

import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rookery.system.git import Git
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner

pytestmark = pytest.mark.anyio


@pytest.fixture
async def git() -> AsyncIterator[Git]:
    spawner = Spawner(new_id())
    yield Git(spawner)
    await spawner.stop_all()


def run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, timeout=30, text=True).stdout


def elsewhere(own: Path, named: bytes) -> None:
    """Move what worktrees share, and name its place as `named` says."""
    common = own / "shared"
    common.mkdir()
    for name in ("config", "objects", "refs"):
        (own / name).rename(common / name)
    (own / "commondir").write_bytes(named)


# Git ends a name at the first NUL and leaves out line ends of any kind.
PLACES: dict[str, Callable[[Path], None]] = {
    "in its folder": lambda _: None,
    "in a common folder": lambda own: elsewhere(own, b"shared\n"),
    "in a common folder named with another line end": lambda own: elsewhere(own, b"shared\r\n"),
    "in a common folder named before a NUL": lambda own: elsewhere(own, b"shared\0else\n"),
    "in a common folder named before much air": lambda own: elsewhere(own, b"shared" + b"\n" * 5_000_000),
    "behind a link": lambda own: (
        (own / "config").rename(own / "real"),
        (own / "config").symlink_to("real"),
        None,
    )[-1],
    "in a folder that is named elsewhere": lambda own: (
        own.rename(own.with_name("real")),
        own.write_bytes(b"gitdir: real\r\n"),
        None,
    )[-1],
}


@pytest.mark.parametrize("place", PLACES)
async def test_a06_a_filter_does_not_run_wherever_the_config_lies(git: Git, tmp_path: Path, place: str) -> None:
    app = tmp_path / "app"
    run("git", "init", "-q", "-b", "main", str(app))
    (app / "file").write_text("one\n")
    run("git", "-C", str(app), "add", "file")
    run("git", "-C", str(app), "config", "filter.evil.clean", f"touch {tmp_path}/ran; cat")
    (app / ".gitattributes").write_text("* filter=evil\n")
    PLACES[place](app / ".git")
    (app / "file").write_text("two\n")
    # With the content, at which git has to look for it however much time has passed.
    asked = await git.run(app, "diff-files", "-p")
    assert b"\n+two\n" in asked.stdout
    assert not (tmp_path / "ran").exists()
    # And git on its own would have run it, so that this says something.
    run("git", "-C", str(app), "diff-files", "-p")
    assert (tmp_path / "ran").exists()


async def test_a_git_folder_with_a_name_that_no_file_can_have_is_refused(git: Git, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / ".git").write_bytes(b"gitdir: a\0b\n")
    with pytest.raises(Exception, match="cannot read the git config"):
        await git.run(tmp_path / "app", "status")


async def test_a_submodule_is_seen_in_an_index_of_any_form(git: Git, tmp_path: Path) -> None:
    person = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always")
    for name in ("inner", "outer"):
        run("git", "init", "-q", "-b", "main", str(tmp_path / name))
        (tmp_path / name / "file").write_text("one\n")
        run("git", "-C", str(tmp_path / name), "add", "file")
        run("git", "-C", str(tmp_path / name), *person, "commit", "-q", "-m", "one")
    outer = tmp_path / "outer"
    run("git", "-C", str(outer), *person, "submodule", "add", "-q", str(tmp_path / "inner"), "lib")
    lib = outer / "lib"
    run("git", "-C", str(lib), "config", "filter.evil.clean", f"touch {tmp_path}/ran; cat")
    (lib / ".gitattributes").write_text("* filter=evil\n")
    forms = (("--index-version=4",), ("--index-version=2",), ("--split-index",))
    for number, form in enumerate(forms):
        run("git", "-C", str(outer), "update-index", "--force-write-index", *form)
        (lib / "file").write_text(f"{number:03}\n")
        assert b"lib" in (await git.run(outer, "status", "--porcelain")).stdout
        assert not (tmp_path / "ran").exists()
