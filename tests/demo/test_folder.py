"""The folder of a demo: used by one demo, and removed afterwards."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.agents.opencode.install import Installation
from rookery.demo.folder import DemoFolder, lock_leftovers, make_folder
from rookery.system.process.table import MARKER


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path


def test_what_the_user_has_set_for_their_own_rookery_and_opencode_does_not_count() -> None:
    theirs = {"ROOKERY_HTTP_PORT": "1", "OPENCODE_CONFIG": "/x", "XDG_CONFIG_HOME": "/y", "GIT_DIR": "/z"}
    kept = {"LANG": "C.UTF-8", "https_proxy": "http://proxy", MARKER: "a.1"}
    place = make_folder()
    found = place.environment({**theirs, **kept, "HOME": "/home/you", "PATH": "/bin"}, "1.18.33")
    assert not {*theirs} & {*found}
    assert kept.items() <= found.items()
    assert (found["HOME"], found["ROOKERY_HOME"]) == (str(place.home), str(place.state))
    assert found["PATH"].startswith("/bin:")
    assert "ROOKERY_AGENTS_VERSION" not in found
    assert place.environment({}, "path")["ROOKERY_AGENTS_VERSION"] == "path"


def test_the_users_opencode_is_lent_and_stays_when_the_demo_goes(folder: Path) -> None:
    program = folder / "releases" / "opencode-1" / "node_modules" / "opencode-x" / "bin" / "opencode"
    program.parent.mkdir(parents=True)
    program.write_text("x")
    place = make_folder()
    place.link_opencode(Installation(program, "1.18.33", None), "1.18.33")
    lent = place.state / "opencode" / "releases" / "opencode-1" / "node_modules" / "opencode-x" / "bin" / "opencode"
    assert lent.read_text() == "x"
    assert place.remove() is None
    assert not place.folder.exists()
    assert program.read_text() == "x"


def test_the_logs_of_one_that_failed_are_kept_and_nothing_else() -> None:
    place = make_folder()
    assert place.folder.stat().st_mode & 0o077 == 0
    place.logs.mkdir()
    (place.logs / "daemon.jsonl").write_text("why")
    kept = place.remove(keep_logs=True)
    assert kept is not None
    assert (kept / "daemon.jsonl").read_text() == "why"
    assert not place.folder.exists()
    assert list(lock_leftovers()) == []


def test_only_the_places_of_demos_that_were_killed_are_left_over(folder: Path) -> None:
    alive, kept, killed = make_folder(), make_folder(), make_folder()
    kept.keep()
    (folder / "rookery-demo-of-somebody").mkdir()
    # What the kernel does when a process dies.
    killed._lock.release()
    found = list(lock_leftovers())
    assert [one.folder for one in found] == [killed.folder]
    assert list(lock_leftovers()) == [], "taken by whoever found it"
    found[0].remove()
    assert alive.folder.exists() and kept.folder.exists() and not killed.folder.exists()


def test_two_places_have_nothing_in_common() -> None:
    one, other = make_folder(), make_folder()
    assert one.folder != other.folder
    assert not DemoFolder(one.folder).try_lock(), "it is held"
    assert not set(one.folder.iterdir()) & set(other.folder.iterdir())
