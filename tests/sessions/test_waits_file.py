"""A wait for a file looks only beneath the session's folder, and notices new files."""

import asyncio
from pathlib import Path

import pytest

from rookery.sessions.waits import WatchedFile
from rookery.system.errors import RookeryError

pytestmark = pytest.mark.anyio


async def test_a_file_is_looked_at_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "text").write_text("what it says")
    (tmp_path / "large").write_bytes(b"x" * 1_000_001)
    found = await WatchedFile(tmp_path, "sub/text").read_state()
    assert (found.exists, found.text) == (True, "what it says")
    assert (await WatchedFile(tmp_path, str(tmp_path / "sub" / "text")).read_state()).text == "what it says"
    for path in ("sub", "large"):
        found = await WatchedFile(tmp_path, path).read_state()
        assert (found.exists, found.text) == (True, None)
    for path in ("none", "sub/none", "sub/text/below", "n" * 5000):
        assert not (await WatchedFile(tmp_path, path).read_state()).exists


@pytest.mark.parametrize("path", ["", ".", "..", "../x", "a/../../x", "/etc/passwd", "/", "a\0b"])
def test_what_lies_outside_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(RookeryError) as caught:
        WatchedFile(tmp_path, path)
    assert caught.value.code == "path-outside-root"


async def test_a_link_leads_nowhere(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.write_text("secret")
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "way").symlink_to(tmp_path)
    for path in ("link", "way/outside"):
        found = await WatchedFile(folder, path).read_state()
        assert (found.exists, found.text) == (False, None)


async def test_that_it_comes_or_changes_is_noticed(tmp_path: Path) -> None:
    file, news = WatchedFile(tmp_path, "sub/late"), asyncio.Event()
    with file.watch(news):
        for text in ("one", "two"):
            news.clear()
            (tmp_path / "sub").mkdir(exist_ok=True)
            (tmp_path / "sub" / "late").write_text(text)
            async with asyncio.timeout(30):
                while (await file.read_state()).text != text:
                    await news.wait()
                    news.clear()
        assert (await file.read_state()).text == "two"
