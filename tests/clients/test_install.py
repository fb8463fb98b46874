"""A client's file is replaced atomically, and a backup of its first content is kept."""

import stat
from pathlib import Path

import pytest

from rookery.clients.entry import EntryTarget, make_entry
from rookery.clients.install import install
from rookery.clients.registry import CLIENTS
from rookery.system.errors import RookeryError
from tests.support.requirements import requirement

CURSOR = CLIENTS["cursor"]
BEFORE = '{\n  // mine\n  "mcpServers": {}\n}\n'


def put(path: Path, url: str = "http://127.0.0.1:1/mcp") -> tuple[str, Path | None]:
    done = install(CURSOR, path, "rookery", make_entry(CURSOR, "http", EntryTarget("rookery", url, ["/x"])))
    return done.change, done.backup


@requirement("client.install.edit")
def test_the_first_state_of_a_file_is_kept_whatever_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(BEFORE)
    path.chmod(0o640)
    backup = tmp_path / "mcp.json.before-rookery"
    assert put(path) == ("changed", backup)
    assert put(path) == ("unchanged", backup)
    assert put(path, "http://127.0.0.1:2/mcp") == ("changed", backup)
    assert backup.read_text() == BEFORE
    assert "// mine" in path.read_text() and "127.0.0.1:2" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(backup.stat().st_mode) == 0o640
    assert sorted(one.name for one in tmp_path.iterdir()) == ["mcp.json", "mcp.json.before-rookery"]


@requirement("client.install.edit")
def test_a_file_that_is_not_there_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "mcp.json"
    assert put(path) == ("made", None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(one.name for one in path.parent.iterdir()) == ["mcp.json"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "dotfiles.json").write_text(BEFORE)
    path = tmp_path / "mcp.json"
    path.symlink_to(tmp_path / "dotfiles.json")
    put(path)
    assert path.is_symlink()
    assert "rookery" in (tmp_path / "dotfiles.json").read_text()


@pytest.mark.parametrize("content", [b'{"mcpServers": ', b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_not_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(content)
    with pytest.raises(RookeryError, match=r"mcp\.json"):
        put(path)
    assert path.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == ["mcp.json"]
