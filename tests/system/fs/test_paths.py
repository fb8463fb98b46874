"""The locations of files."""

from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from rookery.system.fs import paths
from rookery.system.ids import project_id


def test_without_rookery_home_the_platforms_state_folder_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROOKERY_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere/state")
    assert paths.state_folder() == Path("/elsewhere/state/rookery")


def test_a_folder_that_others_may_enter_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir(mode=0o755)
    paths.ensure_private_folder(tmp_path / "s")
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_holds_other_things_is_not_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir(mode=0o755)
    (tmp_path / "s" / "other").touch()
    with pytest.raises(RookeryError, match="contains files that are not Rookery's"):
        paths.ensure_private_folder(tmp_path / "s")
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o755


def test_a_link_is_refused_where_its_name_can_be_guessed(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "s").symlink_to("theirs")
    with pytest.raises(RookeryError):
        paths.ensure_private_folder(tmp_path / "s", allow_link=False)


def test_a_file_in_place_of_the_folder_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("")
    with pytest.raises(RookeryError) as caught:
        paths.ensure_private_folder(tmp_path / "s")
    assert caught.value.code == "state-unusable"
    assert "ROOKERY_HOME" in caught.value.remedy


def test_the_id_of_a_project_is_its_folder_and_the_hash_of_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "alias").symlink_to("app")
    assert project_id(tmp_path / "alias") == project_id(tmp_path / "app")
    assert project_id(tmp_path / "app").startswith("app-")
    assert len(project_id(tmp_path / "app")) == len("app-") + 8
