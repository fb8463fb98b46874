"""P01 to P32 and B34 to B36 of the list of bypasses: both tools and both path resolutions give the same result."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rookery.files.sandbox import SandboxRoot
from rookery.files.secrets import DenyRules
from rookery.system.errors import RookeryError
from tests.support.requirements import requirement
from tests.support.sandbox import SECRET, SECRET_NAME, Tree, entries_of, look, open_descriptors, paths, refusal, refused

SECONDS = 60


def unprivileged(code: str) -> list[str]:
    """Run Python code without the privileges that let root read everything; return the lines that it prints."""
    words = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"] if os.geteuid() == 0 else []
    if words and subprocess.run([*words, "true"], capture_output=True, timeout=SECONDS, check=False).returncode:
        pytest.skip("privileges cannot be dropped here")
    done = subprocess.run(
        [*words, sys.executable, "-c", "from pathlib import Path\n" + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


OUTSIDE = {"path-outside-root"}
UNFIT = {"invalid-input"}
MISSING = {"file-not-found"}


@requirement("files.sandbox.outside")
@pytest.mark.parametrize("path", ["../secret", "a/../../proj-evil/secret", "..", "a/../..", "./../proj-evil"])
def test_p01_dots_do_not_lead_out(root: SandboxRoot, tree: Tree, path: str) -> None:
    tree.write("a/x")
    assert refusal(root, path) == OUTSIDE


@requirement("files.sandbox.literal")
@pytest.mark.parametrize("path", ["..%2fproj-evil", "%2e%2e/proj-evil", "..%c0%af"])
def test_p01_percent_signs_are_names(root: SandboxRoot, tree: Tree, path: str) -> None:
    assert refusal(root, path) == MISSING
    tree.write("%2e%2e/file")
    assert look(root, "%2e%2e/file").text == "inside\n"
    assert paths(entries_of(root, "%2e%2e")) == ["%2e%2e/file"]


def test_p01_four_dots_are_no_way_up(root: SandboxRoot) -> None:
    assert refusal(root, "....//....//etc") == {"file-not-found"}


def test_p01_dots_that_stay_inside_are_followed(root: SandboxRoot, tree: Tree) -> None:
    tree.write("a/x")
    assert look(root, "a/../a/./x").text == "inside\n"
    assert paths(entries_of(root, "a/..")) == ["a"]


@requirement("files.sandbox.outside")
@pytest.mark.parametrize("path", ["/etc/passwd", "//etc/passwd", "/", "/etc", "/proc/self/root/etc/passwd"])
def test_p02_absolute_paths_are_outside(root: SandboxRoot, path: str) -> None:
    for error in refused(root, path):
        assert error.code == "path-outside-root"
        assert error.message == f"Path outside project root: {path}"


@requirement("files.sandbox.literal")
@pytest.mark.parametrize("path", ["~/.bashrc", "$HOME/x", "${HOME}", "~root"])
def test_p02_nothing_is_expanded(root: SandboxRoot, path: str) -> None:
    assert refusal(root, path) == MISSING


def test_p03_an_absolute_path_inside_the_root_is_taken(root: SandboxRoot, tree: Tree) -> None:
    tree.write("a/x")
    assert look(root, f"{tree.root}/a/x").path == "a/x"
    assert entries_of(root, str(tree.root)).path == "."
    assert refusal(root, f"{tree.root}/../proj-evil/secret") == OUTSIDE


@requirement("files.sandbox.outside")
def test_p04_the_prefix_twin_of_the_root_is_outside(root: SandboxRoot, tree: Tree) -> None:
    assert str(tree.outside).startswith(str(tree.root))
    assert refusal(root, str(tree.outside)) == refusal(root, f"{tree.outside}/secret") == OUTSIDE


@requirement("files.sandbox.links")
@pytest.mark.parametrize("way", ["absolute", "relative", "chain", "through"])
def test_p05_p06_links_do_not_lead_out(root: SandboxRoot, tree: Tree, way: str) -> None:
    tree.link("absolute", tree.outside)
    tree.link("relative", "../proj-evil")
    tree.link("deep/chain", "../relative")
    tree.link("chain", "deep/chain")
    tree.write("deep/x")
    tree.link("through", "deep/../../proj-evil")
    tree.link(f"{way}-file", f"{way}/secret")
    before = open_descriptors()
    for path in (way, f"{way}/secret", f"{way}/{SECRET_NAME}", f"{way}-file"):
        assert refusal(root, path) == OUTSIDE
        for error in refused(root, path):
            assert SECRET.decode() not in error.message
            assert str(tree.outside) not in error.message
    assert open_descriptors() == before


@requirement("files.sandbox.links")
def test_p07_a_relative_link_that_stays_inside_is_followed(root: SandboxRoot, tree: Tree) -> None:
    tree.write("a/b/file")
    tree.link("c/up", "../a")
    tree.link("c/to", "up/b/../b/file")
    assert look(root, "c/to").path == "a/b/file"
    assert look(root, "c/up/b/file").text == "inside\n"
    assert paths(entries_of(root, "c/up")) == ["a/b"]


def test_p07_an_absolute_link_is_refused_even_if_it_points_inside(root: SandboxRoot, tree: Tree) -> None:
    tree.write("a/file")
    tree.link("link", tree.root / "a")
    assert refusal(root, "link") == refusal(root, "link/file") == OUTSIDE


@requirement("files.sandbox.links")
@pytest.mark.parametrize("target", ["/proc/self/root", "/proc/self/cwd", "/proc/self/fd/0", "/dev/stdin"])
def test_p08_magic_links_are_refused(root: SandboxRoot, tree: Tree, target: str) -> None:
    tree.link("magic", target)
    tree.link("relative", "../" * 30 + target[1:])
    assert refusal(root, "magic") == refusal(root, "relative") == refusal(root, "magic/etc") == OUTSIDE


@requirement("files.sandbox.literal")
def test_p10_a_nul_is_refused(root: SandboxRoot, tree: Tree) -> None:
    tree.write("ok.txt")
    assert refusal(root, "ok.txt\0/../../x") == UNFIT


def test_p11_a_hard_link_is_a_file_like_any_other(root: SandboxRoot, tree: Tree) -> None:
    """Nothing tells it from one, and the kernel lets people make them only to files that they may read and write."""
    (tree.root / "hard").hardlink_to(tree.outside / "secret")
    assert look(root, "hard").text == SECRET.decode()
    assert paths(entries_of(root)) == ["hard"]


@requirement("files.sandbox.special")
def test_p12_pipes_sockets_and_devices_hold_nobody_up(
    root: SandboxRoot, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tree.root / "pipe")
    monkeypatch.chdir(tree.root)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    tree.link("zero", "/dev/zero")
    kinds = {"pipe": "is a pipe, not a file", "socket": "is a socket"}
    with contextlib.suppress(PermissionError):
        # Only root may make one, and not in every container. It never ends.
        os.mknod(tree.root / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        kinds = {"device": "is a device, not a file", **kinds}
    for name, kind in kinds.items():
        told = refused(root, name)
        assert kind in told[0].message and {error.code for error in told} == UNFIT
    assert refusal(root, "zero") == OUTSIDE
    listed = entries_of(root)
    others = [(name, "other") for name in kinds]
    assert [(entry.path, entry.type) for entry in listed.entries] == [*others, ("zero", "link")]


@requirement("files.sandbox.literal")
def test_p15_the_wrong_kind_of_file_is_told(root: SandboxRoot, tree: Tree) -> None:
    tree.write("folder/file")
    for path, told in [
        ("folder", "folder is a folder, not a file"),
        (".", ". is a folder"),
        ("folder/file/", "not a folder"),
        ("folder/file/x", "not a folder"),
        ("", "the path is empty"),
        ("none", "none does not exist"),
    ]:
        with pytest.raises(RookeryError, match=told):
            look(root, path)
    for path, told in [("folder/file", "is not a folder"), ("", "the path is empty"), ("none", "none does not exist")]:
        with pytest.raises(RookeryError, match=told):
            entries_of(root, path)
    assert paths(entries_of(root, "folder/")) == ["folder/file"]


@requirement("files.sandbox.literal")
@pytest.mark.parametrize("path", ["n" * 256, "a/" * 3000 + "x", "x/" + "é" * 128, "\ud800"])
def test_p16_what_is_too_long_or_no_text_is_told(root: SandboxRoot, path: str) -> None:
    assert refusal(root, path) == UNFIT


def test_p16_a_deep_tree_costs_no_descriptors(root: SandboxRoot, tree: Tree) -> None:
    deep = "d/" * 500
    tree.write(f"{deep}x")
    tree.link("into", deep)
    before = open_descriptors()
    assert look(root, f"into/{'../d/' * 200}x").text == "inside\n"
    assert paths(entries_of(root, "into")) == [f"{deep}x"]
    assert open_descriptors() == before


@requirement("files.sandbox.literal")
def test_p17_a_circle_of_links_is_told(root: SandboxRoot, tree: Tree) -> None:
    tree.link("one", "two")
    tree.link("two", "one")
    tree.link("self", "self/x")
    assert refusal(root, "one") == refusal(root, "self") == refusal(root, "one/x") == UNFIT


WINDOWS = [
    "C:\\x",
    "C:rel",
    "\\\\?\\C:\\x",
    "\\\\host\\share",
    "a\\..\\b",
    "..\\x",
    "file.txt::$DATA",
    "CON",
    "a/nul",
    "x.",
    "x ",
]


@requirement("files.sandbox.literal", "files.read.names")
@pytest.mark.parametrize("path", WINDOWS)
def test_p22_windows_forms_are_names_without_a_meaning(root: SandboxRoot, tree: Tree, path: str) -> None:
    tree.write("x", b"another file")
    tree.write("b", b"another file")
    (tree.root / "a").mkdir()
    assert refusal(root, path) == {"file-not-found"}
    tree.write(path)
    assert look(root, path).text == "inside\n"


@requirement("files.sandbox.literal")
@pytest.mark.parametrize("path", ["file:///etc/passwd", "file://localhost/etc/passwd", "http://x/y", "C://x"])
def test_p23_urls_are_refused(root: SandboxRoot, path: str) -> None:
    assert [error.message.split(":")[0] for error in refused(root, path)] == ["expected a path, not a URL"] * 2
    assert refusal(root, "file:/etc/passwd") == {"file-not-found"}


@pytest.mark.parametrize("new", ["folder", "link", "nothing"])
def test_p25_a_root_that_was_replaced_is_no_root_any_more(root: SandboxRoot, tree: Tree, new: str) -> None:
    tree.write("x")
    tree.root.rename(tree.root.with_name("moved"))
    if new == "folder":
        tree.write("x")
    elif new == "link":
        tree.root.symlink_to("moved")
    assert refusal(root, "x") == refusal(root, ".") == {"workspace-not-found"}


def test_p25_a_root_is_no_link_and_no_file(tree: Tree, by_kernel: bool) -> None:
    tree.write("file")
    tree.link("link", ".")
    for name in ("file", "link", "none"):
        with pytest.raises(RookeryError, match="cannot be opened as a folder"):
            SandboxRoot(tree.root / name, use_openat2=by_kernel)


@pytest.mark.parametrize("path", ["/", "~", "~/..", "relative", "/srv/../srv"])
def test_p26_what_holds_everything_is_no_root(path: str) -> None:
    place = Path.home().parent if path == "~/.." else Path(path).expanduser()
    with pytest.raises(RookeryError, match="cannot be the root"):
        SandboxRoot(place)


def test_p26_a_workspace_inside_is_denied_to_the_outer_one(tree: Tree, by_kernel: bool) -> None:
    tree.write("inner/work/x")
    tree.write("inner/other/x")
    tree.link("link", "inner/work/x")
    with SandboxRoot(tree.root, DenyRules(workspaces=(("inner", "work"),)), use_openat2=by_kernel) as root:
        for path in ("inner/work", "inner/work/x", "inner/WORK"):
            assert refusal(root, path) == {"path-denied"}
        with pytest.raises(RookeryError, match="belongs to another workspace"):
            look(root, "link")
        assert paths(entries_of(root, "inner", depth=3)) == ["inner/other", "inner/other/x", "inner/work"]


def test_p28_a_name_that_begins_with_a_dash_is_a_name(root: SandboxRoot, tree: Tree) -> None:
    tree.write("--output=x/-f")
    assert look(root, "--output=x/-f").text == "inside\n"
    assert paths(entries_of(root, "--output=x")) == ["--output=x/-f"]
    assert paths(entries_of(root, depth=2)) == ["--output=x", "--output=x/-f"]


@requirement("files.sandbox.literal")
def test_p32_what_the_user_may_not_read_is_told(tree: Tree, by_kernel: bool) -> None:
    tree.write("file").chmod(0)
    (tree.root / "folder").mkdir(mode=0)
    told = unprivileged(
        f"""
        from tests.support.sandbox import refused, paths, entries_of
        from rookery.files.sandbox import SandboxRoot as Root
        with Root(Path({str(tree.root)!r}), use_openat2={by_kernel}) as root:
            for path in ("file", "folder", "folder/x"):
                print(*(error.code for error in refused(root, path)))
            print(*paths(entries_of(root, depth=3)))
        """
    )
    assert told == ["file-unreadable invalid-input", *["file-unreadable file-unreadable"] * 2, "file folder"]
