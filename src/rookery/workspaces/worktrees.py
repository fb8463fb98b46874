"""The worktrees of a repository as git reports them, and the ref that a new worktree starts from.

The base is the ref that the user names, else the default branch of the remote, else HEAD.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_plain
from rookery.system.git import Git
from rookery.system.process.spawn import WorkspaceIdentity

_MAX_FILE_BYTES = 64 * 1024
# The error of git for a worktree that another git process is creating: the file exists, but is empty for a moment.
_UNFINISHED = re.compile(r"failed to read \S*commondir: Success")
_TRIES = 10
_MAX_LOG_BYTES = 16 * 2**20
_BRANCH = "ref: refs/heads/"
_COMMIT = re.compile(r"[0-9a-f]{40,64}\Z")

_REMOTE = "refs/remotes/origin/"
_DEFAULT_BRANCHES = ("main", "master")


class Worktree(msgspec.Struct, frozen=True):
    """A record of `git worktree list`. A lock without a reason is the empty string."""

    path: Path
    head: str | None = None
    branch: str | None = None
    main: bool = False
    bare: bool = False
    detached: bool = False
    locked: str | None = None


async def list_worktrees(git: Git, checkout: Path) -> list[Worktree]:
    """Return all worktrees of the repository, the main one first. No program of the repository runs."""
    for tries_left in reversed(range(_TRIES)):
        try:
            output = await git.output(checkout, "worktree", "list", "--porcelain", "-z")
            return list(parse_worktrees(output))
        except RookeryError as error:
            if not (tries_left and _UNFINISHED.search(error.message)):
                raise
    raise AssertionError("the last attempt returns or raises")


def parse_worktrees(listed: bytes) -> Iterator[Worktree]:
    """Parse the output of `git worktree list --porcelain -z`."""
    for number, record in enumerate(listed.removesuffix(b"\0").split(b"\0\0")):
        fields = dict(_field(line) for line in record.split(b"\0") if line)
        if "worktree" not in fields:
            continue
        # A branch without a commit has a HEAD of zeros.
        head = fields.get("HEAD", "").strip("0") and fields["HEAD"]
        yield Worktree(
            path=Path(fields["worktree"]),
            head=head or None,
            branch=fields["branch"].removeprefix("refs/heads/") if "branch" in fields else None,
            main=number == 0,
            bare="bare" in fields,
            detached="detached" in fields,
            locked=fields.get("locked"),
        )


def _field(line: bytes) -> tuple[str, str]:
    name, _, value = line.partition(b" ")
    return os.fsdecode(name), os.fsdecode(value)


async def find_git_folder(git: Git, worktree: Path) -> Path:
    """Return the worktree's own git folder: `.git` of the main checkout, `.git/worktrees/<id>` of the others."""
    return Path(os.fsdecode(await git.output(worktree, "rev-parse", "--absolute-git-dir")))


def read_git_folder(worktree: Path) -> Path | None:
    """Return the git folder that a worktree names, read without git; None if there is none to read."""
    try:
        content = read_plain(f"{worktree}/.git", _MAX_FILE_BYTES)
    except OSError:
        dot_git = worktree / ".git"
        with contextlib.suppress(OSError):  # such as a name that is too long for a file
            return dot_git if dot_git.is_dir() else None
        return None
    if not content.startswith(b"gitdir: ") or b"\0" in content:
        return None
    return worktree / os.fsdecode(content.removeprefix(b"gitdir: ").rstrip(b"\r\n"))


def find_home(worktree: Path) -> WorkspaceIdentity | None:
    """Return the workspace at this path, for the processes that work for it."""
    own = read_git_folder(worktree)
    own = own.resolve() if own is not None else None
    return WorkspaceIdentity(worktree, own, read_creation_time(own)) if own is not None else None


def read_creation_time(own: Path) -> int:
    """Return when a worktree was created, or 0 for a main checkout, of which there is only one.

    The time is that of a file that git never writes again.
    """
    try:
        return (own / "commondir").stat().st_mtime_ns
    except OSError:
        return 0


def list_registered_worktrees(common: Path) -> dict[Path, Path]:
    """Return the worktrees that are registered in a repository's common git folder: path to own git folder."""
    worktrees: dict[Path, Path] = {}
    try:
        folders = sorted((common / "worktrees").iterdir())
    except OSError:
        return worktrees
    for folder in folders:
        if (path := read_registered_path(folder)) is not None:
            worktrees[path] = folder
    return worktrees


def read_registered_path(own: Path) -> Path | None:
    """Return the path of the worktree with this git folder; None if it cannot be read."""
    try:
        git_file = os.fsdecode(read_plain(f"{own}/gitdir", _MAX_FILE_BYTES).rstrip(b"\r\n"))
    except OSError:
        return None
    return Path(os.path.normpath(own / git_file)).parent


def read_worktree(own: Path) -> Worktree | None:
    """Read a worktree from its own git folder, without git and without the commit of its branch.

    Return None if the files are missing, or if the repository stores its refs in another format.
    """
    path = read_registered_path(own)
    try:
        head = os.fsdecode(read_plain(f"{own}/HEAD", _MAX_FILE_BYTES).rstrip(b"\r\n"))
    except OSError:
        return None
    branch = head.removeprefix(_BRANCH) if head.startswith(_BRANCH) else None
    detached = _COMMIT.match(head) is not None
    if path is None or not (branch or detached) or branch == ".invalid":
        return None
    locked: str | None = None
    with contextlib.suppress(OSError):
        locked = os.fsdecode(read_plain(f"{own}/locked", _MAX_FILE_BYTES).strip())
    return Worktree(path, head if detached else None, branch, detached=detached, locked=locked)


def find_mismatch(worktree: Path, own: Path) -> str:
    """Return why a folder is not the worktree registered for it, or "". Both sides must name each other."""
    git_folder = read_git_folder(worktree)
    if git_folder is not None and (git_folder == own or _are_same(git_folder, own)):
        return ""
    if not worktree.is_dir():
        return f"{worktree} does not exist"
    if git_folder is None:
        return f"{worktree / '.git'} cannot be read"
    return f"{worktree / '.git'} names {git_folder}, but the repository keeps it at {own}"


def _are_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False


def has_head_moved(own: Path) -> bool:
    """Return whether the head of a worktree has ever moved.

    Each line of the reflog names the old and the new commit.
    """
    try:
        lines = read_plain(own / "logs" / "HEAD", _MAX_LOG_BYTES).splitlines()
    except OSError:
        return True
    return len({line.split(b" ", 2)[1] for line in lines if line.count(b" ") > 1}) > 1


class BaseRef(msgspec.Struct, frozen=True):
    """A ref to start from: the `name` for users, its `commit` when it was resolved, and the `reason` for the choice."""

    name: str
    commit: str
    reason: Literal["given", "remote-default", "head", "detached"] = "given"


async def find_base(git: Git, checkout: Path, ref: str | None = None) -> BaseRef:
    """Return the ref named by `ref`, else the default branch of the remote, else HEAD."""
    if ref is not None:
        return await _resolve_given(git, checkout, ref)
    return await find_remote_default(git, checkout) or await _resolve_head(git, checkout)


async def find_remote_default(git: Git, checkout: Path) -> BaseRef | None:
    """Return the branch that origin/HEAD refers to, else origin/main or origin/master."""
    names = [f"{_REMOTE}{name}" for name in ("HEAD", *_DEFAULT_BRANCHES)]
    format_option = "--format=%(refname) %(objectname) %(objecttype) %(symref)"
    output = (await git.output(checkout, "for-each-ref", format_option, *names)).decode("utf-8", "replace")
    refs = {line.split(" ")[0]: line.split(" ")[1:] for line in output.splitlines()}
    for name in names:
        if name not in refs or refs[name][1] != "commit":
            continue
        commit, _, symref = refs[name]
        # A HEAD that names no branch has a commit, but no name.
        full = symref if name.endswith("/HEAD") else name
        if full.startswith(_REMOTE):
            return BaseRef(full.removeprefix("refs/remotes/"), commit, "remote-default")
    return None


async def find_default_base_name(git: Git, checkout: Path) -> str:
    """Return the name of the default base. Works for a repository without a commit too."""
    remote_default = await find_remote_default(git, checkout)
    return remote_default.name if remote_default else await _find_head_branch(git, checkout) or "HEAD"


async def _resolve_given(git: Git, checkout: Path, ref: str) -> BaseRef:
    if ref and not ref.startswith("-") and ref.isprintable():
        for name in (ref, f"origin/{ref}"):
            if commit := await _find_commit(git, checkout, name):
                return BaseRef(name, commit)
    remedy = "name a branch, tag or commit; fetch remote refs first: git fetch"
    raise RookeryError("invalid-input", f"{ref!r} is not a commit in {checkout}", remedy)


async def _resolve_head(git: Git, checkout: Path) -> BaseRef:
    commit = await _find_commit(git, checkout, "HEAD")
    if commit is None:
        raise RookeryError("invalid-input", f"{checkout} has no commit to start from", "make one: git commit")
    branch = await _find_head_branch(git, checkout)
    return BaseRef(branch, commit, "head") if branch is not None else BaseRef(commit, commit, "detached")


async def _find_head_branch(git: Git, checkout: Path) -> str | None:
    result = await git.run(checkout, "symbolic-ref", "--quiet", "--short", "HEAD")
    return result.stdout.decode("utf-8", "replace").strip() if result.returncode == 0 else None


async def _find_commit(git: Git, checkout: Path, name: str) -> str | None:
    result = await git.run(checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return result.stdout.decode("ascii").strip() if result.returncode == 0 else None
