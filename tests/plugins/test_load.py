"""Loading plugins from approved text or from a package; failures do no harm."""

import threading
from pathlib import Path

import pytest

from rookery.plugins import RookeryError
from rookery.plugins.load import PluginCandidate, find_installed, from_text, load_plugin
from rookery.plugins.registry import PluginOrigin
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

ORIGIN = PluginOrigin("/work/app/.rookery/plugins/notify.py", "app-1")
NOTIFY = """
from __future__ import annotations
from dataclasses import dataclass
from rookery.plugins import Plugin

plugin = Plugin("notify", version="1.0")


@dataclass
class Seen:
    # Found by way of the module, which a dataclass looks up.
    text: str | None
"""


async def test_a_plugin_is_made_of_the_text_alone() -> None:
    plugin = await load_plugin(from_text("notify", NOTIFY, ORIGIN))
    assert (plugin.name, plugin.version) == ("notify", "1.0")


@requirement("plugin.hook.registry")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import not_there_at_all", "No module named 'not_there_at_all'"),
        ("def (", "SyntaxError"),
        ("a\0b", "SyntaxError"),
        ("import sys\nsys.exit(7)", "SystemExit: 7"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise BaseException('all of it')", "BaseException: all of it"),
        ("plugin = 'text'", "it has no `plugin`"),
        ("", "it has no `plugin`"),
        ("from rookery.plugins import Plugin\nPlugin('a').on('session.idel')", "did you mean 'session.idle'?"),
        ("from rookery.plugins import Plugin\nPlugin('A')", "is not a valid name for a plugin"),
    ],
)
async def test_one_that_cannot_be_loaded_tells_why(text: str, said: str) -> None:
    with pytest.raises(RookeryError) as caught:
        await load_plugin(from_text("notify", text, ORIGIN))
    assert caught.value.code == "plugin-failed"
    assert said in caught.value.message


async def test_a_line_that_names_another_encoding_means_nothing() -> None:
    """In UTF-7 this would be code that nobody has seen."""
    hidden = "# -*- coding: utf-7 -*-\n# +AAo-raise SystemExit+ACgAKQ-\n" + NOTIFY.replace("from __future__", "#")
    assert (await load_plugin(from_text("notify", hidden, ORIGIN))).name == "notify"


async def test_one_that_never_ends_to_load_is_given_up() -> None:
    release = threading.Event()
    with pytest.raises(RookeryError, match=r"longer than 0\.1 s"):
        await load_plugin(PluginCandidate("stuck", ORIGIN, release.wait), seconds=0.1)
    release.set()


@requirement("plugin.hook.registry")
async def test_packages_name_their_plugins_as_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notify_for_rookery.py").write_text(NOTIFY)
    about = tmp_path / "notify_for_rookery-2.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: notify-for-rookery\nVersion: 2.1\n")
    (about / "entry_points.txt").write_text(
        "[rookery.plugins]\nbroken = not_there_at_all:plugin\nnotify = notify_for_rookery:plugin\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    broken, notify = [one for one in find_installed() if "notify-for-rookery" in one.origin.text]
    assert (notify.name, notify.origin.text, notify.origin.version) == (
        "notify",
        "package notify-for-rookery 2.1",
        "2.1",
    )
    assert (await load_plugin(notify)).name == "notify"
    with pytest.raises(RookeryError, match="not_there_at_all"):
        await load_plugin(broken)
