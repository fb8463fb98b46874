"""Names that change during access (B33 and B35), and kernels without openat2 (B34)."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from rookery.files.list import list_folder
from rookery.files.read import read_content
from rookery.files.sandbox import SandboxRoot
from rookery.system.errors import RookeryError
from rookery.system.fs import beneath
from rookery.system.git import Git
from tests.support.requirements import requirement
from tests.support.sandbox import SECRET, SECRET_NAME, Tree, make_tree, open_descriptors
from tests.support.small_disk import SmallDisk
from tests.support.soak import repetitions, soak

SECONDS = repetitions(2, 60)
FLIPPERS = 4
PATIENCE = 60
# What has to be seen for a race to have been one.
FAIR = ("inside", "listed secret", "path-outside-root")
CLEAN = {"path-outside-root", "file-not-found", "invalid-input", "file-unreadable", "git-failed", "spawn-failed"}


@contextlib.contextmanager
def repeated(*works: Callable[[], None]) -> Generator[None]:
    """Each of them again and again in a thread of its own, until the block ends."""
    over = threading.Event()

    def go(work: Callable[[], None]) -> None:
        while not over.is_set():
            work()

    threads = [threading.Thread(target=go, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def flipper(folder: Path, outside: Path) -> Callable[[], None]:
    """Puts a link to the outside in the place of a folder, and the folder back."""
    aside, link = folder.with_name(f"{folder.name}-aside"), folder.with_name(f"{folder.name}-link")
    link.symlink_to(outside)

    def flip() -> None:
        folder.rename(aside)
        link.rename(folder)
        folder.rename(link)
        aside.rename(folder)

    return flip


@soak
@pytest.mark.timeout(300)
@requirement("files.sandbox.links")
def test_p09_b33_nothing_outside_is_read_while_folders_are_swapped_for_links(
    tree: Tree, root: SandboxRoot, git: Git
) -> None:
    for number in range(FLIPPERS):
        tree.write(f"{number}/way/secret", b"inside")
    tree.link("through", "0/way")
    flippers = [flipper(tree.root / str(number) / "way", tree.outside) for number in range(FLIPPERS)]
    ways = [*(f"{number}/way" for number in range(FLIPPERS)), "through"]
    seen: Counter[str] = Counter()

    def is_on(end: float) -> bool:
        """A busy machine gets longer, until there was something to see."""
        late = time.monotonic() - end
        return late < 0 or (late < PATIENCE and not all(seen[word] for word in FAIR))

    async def read_all(end: float) -> None:
        while is_on(end):
            for way in ways:
                try:
                    seen[(await read_content(root, f"{way}/secret")).text] += 1
                except RookeryError as error:
                    seen[error.code] += 1
            await asyncio.sleep(0)

    async def list_all(end: float) -> None:
        while is_on(end):
            for way, depth in zip(ways, (1, 2) * FLIPPERS, strict=False):
                try:
                    listed = await list_folder(root, git, way, depth=depth)
                    seen.update(f"listed {entry.path.rpartition('/')[2]}" for entry in listed.entries)
                except RookeryError as error:
                    seen[f"listing {error.code}"] += 1

    async def race() -> None:
        end = time.monotonic() + SECONDS
        await asyncio.gather(read_all(end), list_all(end))

    with repeated(*flippers):
        asyncio.run(race())
    print(dict(seen))
    assert all(seen[word] for word in FAIR), seen
    told = {"inside", "listed secret"} | CLEAN | {f"listing {code}" for code in CLEAN}
    assert SECRET.decode() not in seen
    assert f"listed {SECRET_NAME}" not in seen
    assert set(seen) <= told


def test_b35_a_worktree_that_is_removed_meanwhile_is_told_and_leaves_no_descriptor(
    tmp_path: Path, by_kernel: bool, git: Git
) -> None:
    tree = make_tree(tmp_path)
    tree.write("large", b"line\n" * 50_000)
    run = ["git", "-C", str(tree.root), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*run, "add", "."], check=True, timeout=30)
    subprocess.run([*run, "commit", "-qm", "x"], check=True, timeout=30)
    other = tmp_path / "other"
    before = open_descriptors()
    told: set[str] = set()

    async def use(root: SandboxRoot) -> None:
        while True:
            try:
                await read_content(root, "large")
                await list_folder(root, git, ".")
            except RookeryError as error:
                told.add(error.code)
                if error.code == "workspace-not-found":
                    return

    async def removed_meanwhile() -> None:
        with SandboxRoot(other, use_openat2=by_kernel) as root:
            using = asyncio.get_running_loop().create_task(asyncio.wait_for(use(root), 30))
            await asyncio.to_thread(
                subprocess.run, [*run, "worktree", "remove", "--force", str(other)], check=True, timeout=30
            )
            await using

    for _ in range(3):
        subprocess.run([*run, "worktree", "add", "-q", "--detach", str(other)], check=True, timeout=30)
        asyncio.run(removed_meanwhile())
    assert "workspace-not-found" in told
    # Its `.git` may be gone before the folder is.
    assert told <= CLEAN | {"workspace-not-found", "repository-not-found"}
    assert open_descriptors() == before


# A filter as old containers have it: openat2 is forbidden, everything else is allowed.
FORBIDDEN = """
import ctypes, struct, sys
code = b"".join(struct.pack("HBBI", *one) for one in [
    (0x20, 0, 0, 0), (0x15, 0, 1, 437), (0x06, 0, 0, 0x00050000 | int(sys.argv[2])), (0x06, 0, 0, 0x7FFF0000)])
held = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("HP", 4, ctypes.addressof(held)))
library = ctypes.CDLL(None, use_errno=True)
assert library.prctl(38, 1, 0, 0, 0) == 0
assert library.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
from pathlib import Path
from rookery.files.sandbox import SandboxRoot as Root
from rookery.system.fs import beneath
from tests.support.sandbox import entries_of, look, paths, refusal
print(beneath.has_openat2())
with Root(Path(sys.argv[1])) as root:
    print(look(root, "good").text, *paths(entries_of(root, "to-a")), *refusal(root, "out"), *refusal(root, "abs"))
"""


@requirement("files.sandbox.links")
@pytest.mark.skipif(sys.platform != "linux", reason="openat2 and its filters are Linux's")
@pytest.mark.parametrize("error", [1, 38])
def test_b34_without_openat2_the_walk_gives_the_same_verdicts(tree: Tree, error: int) -> None:
    tree.write("a/x", b"inside")
    tree.link("good", "a/x")
    tree.link("to-a", "a")
    tree.link("out", "../proj-evil")
    tree.link("abs", "/etc")
    done = subprocess.run(
        [sys.executable, "-c", FORBIDDEN, str(tree.root), str(error)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["False", "inside a/x path-outside-root path-outside-root"]


def test_b34_openat2_itself_refuses_links_ways_out_and_nul(tree: Tree) -> None:
    if not beneath.has_openat2():
        pytest.skip("this kernel has no openat2")
    tree.write("a")
    tree.link("link", "a")
    folder = os.open(tree.root, os.O_RDONLY)
    try:
        os.close(beneath.open_without_links(folder, b"a", os.O_RDONLY))
        for path, told in [(b"link", "symbolic"), (b"..", "cross-device"), (b"/etc", "cross-device"), (b"a\0b", "NUL")]:
            with pytest.raises(OSError, match=rf"(?i){told}"):
                beneath.open_without_links(folder, path, os.O_RDONLY)
    finally:
        os.close(folder)


def test_p24_another_filesystem_inside_is_refused_if_asked_for(small_disk: SmallDisk) -> None:
    """The other filesystem is a real one, in a mount namespace of its own."""
    told = small_disk.run(
        """
        from rookery.files.sandbox import SandboxRoot as Root
        from rookery.system.errors import RookeryError
        (disk / "x").write_text("other")
        for by_kernel in (True, False):
            for one_filesystem in (False, True):
                with Root(disk.parent, use_openat2=by_kernel, one_filesystem=one_filesystem) as root:
                    try:
                        with root.open_file("disk/x") as handle:
                            print(handle.path)
                    except RookeryError as error:
                        print(error.code)
        """
    )
    assert told == ["disk/x", "path-outside-root"] * 2
