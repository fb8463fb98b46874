"""Reading, listing and saving in threads: failed starts and cancelled waits leave nothing open."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rookery.files.list import list_folder
from rookery.files.read import read_content
from rookery.files.sandbox import SandboxRoot
from rookery.files.save import save_file_in_thread
from rookery.files.secrets import DenyRules
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from tests.support.sandbox import Tree, open_descriptors

SECONDS = 30


def given_up_before_it_began(work: Callable[[], Awaitable[object]]) -> None:
    """Every thread has something else to do until nobody waits for `work` any more."""

    async def give_up() -> None:
        release = threading.Event()
        with ThreadPoolExecutor(1) as only:
            asyncio.get_running_loop().set_default_executor(only)
            only.submit(release.wait, SECONDS)
            waiting = asyncio.ensure_future(work())
            # Its turn comes, and it waits for the thread.
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            release.set()

    asyncio.run(give_up())


def test_a_read_whose_thread_never_begins_leaves_no_descriptor(root: SandboxRoot, tree: Tree) -> None:
    tree.write("large", b"line\n" * 20_000)
    before = open_descriptors()
    given_up_before_it_began(lambda: read_content(root, "large"))
    assert open_descriptors() == before


def test_a_listing_whose_thread_never_begins_leaves_no_descriptor(root: SandboxRoot, tree: Tree, git: Git) -> None:
    before = open_descriptors()
    given_up_before_it_began(lambda: list_folder(root, git, "."))
    assert open_descriptors() == before


def test_a_file_whose_thread_never_begins_is_not_saved_and_leaves_no_descriptor(root: SandboxRoot, tree: Tree) -> None:
    before = open_descriptors()
    given_up_before_it_began(lambda: save_file_in_thread(root, "one.png", b"x", bool))
    assert open_descriptors() == before
    assert not (tree.root / "one.png").exists()


@dataclass(frozen=True)
class _Slow(DenyRules):
    """Judges a file when it is let go on."""

    began: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)

    def file_denial(self, names: Sequence[str]) -> str:
        self.began.set()
        self.release.wait(SECONDS)
        return super().file_denial(names)


def test_a_file_is_saved_to_its_end_though_nobody_waits_and_the_root_is_closed(tree: Tree) -> None:
    slow, before = _Slow(), open_descriptors()

    async def give_up() -> None:
        with SandboxRoot(tree.root, slow) as root:
            waiting = asyncio.ensure_future(save_file_in_thread(root, "a/one.png", b"x", bool))
            assert await asyncio.to_thread(slow.began.wait, SECONDS)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        slow.release.set()

    # It ends with the threads of its loop.
    asyncio.run(give_up())
    assert (tree.root / "a/one.png").read_bytes() == b"x"
    assert open_descriptors() == before


def test_nothing_is_begun_with_a_root_that_is_closed(tree: Tree, git: Git, tmp_path: Path) -> None:
    root, before = SandboxRoot(tree.root), open_descriptors()
    root.close()
    for work in (
        read_content(root, "README.md"),
        list_folder(root, git, "."),
        save_file_in_thread(root, "one.png", b"x", bool),
    ):
        with pytest.raises(RookeryError, match="is closed"):
            asyncio.run(work)
    assert open_descriptors() == before - 1
