"""What a new workspace starts from: the ref that was given, else the remote's default branch, else HEAD."""

from pathlib import Path

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.git import Git

_REMOTE = "refs/remotes/origin/"
_USUAL = ("main", "master")


class Base(msgspec.Struct, frozen=True):
    """`name` is what people call it, `commit` what it was when it was looked up."""

    name: str
    commit: str


async def find_base(git: Git, checkout: Path, given: str | None = None) -> Base:
    if given is not None:
        return await _given(git, checkout, given)
    return await remote_default(git, checkout) or await _head(git, checkout)


async def remote_default(git: Git, checkout: Path) -> Base | None:
    """The branch that origin/HEAD stands for, else origin/main or origin/master."""
    names = [f"{_REMOTE}{name}" for name in ("HEAD", *_USUAL)]
    wanted = "--format=%(refname) %(objectname) %(objecttype) %(symref)"
    listed = (await git.told(checkout, "for-each-ref", wanted, *names)).decode("utf-8", "replace")
    found = {line.split(" ")[0]: line.split(" ")[1:] for line in listed.splitlines()}
    for name in names:
        if name not in found or found[name][1] != "commit":
            continue
        commit, _, symref = found[name]
        # A HEAD that names no branch has a commit, but nothing to be called by.
        full = symref if name.endswith("/HEAD") else name
        if full.startswith(_REMOTE):
            return Base(full.removeprefix("refs/remotes/"), commit)
    return None


async def default_name(git: Git, checkout: Path) -> str:
    """What the base is called where none was kept; also of a repository without a commit."""
    found = await remote_default(git, checkout)
    return found.name if found else await _branch_of_head(git, checkout) or "HEAD"


async def _given(git: Git, checkout: Path, given: str) -> Base:
    if given and not given.startswith("-") and given.isprintable():
        for name in (given, f"origin/{given}"):
            if commit := await _commit(git, checkout, name):
                return Base(name, commit)
    remedy = "name a branch, tag or commit; what a remote has must be fetched first: git fetch"
    raise RookeryError("invalid-input", f"{given!r} is no commit in {checkout}", remedy)


async def _head(git: Git, checkout: Path) -> Base:
    commit = await _commit(git, checkout, "HEAD")
    if commit is None:
        raise RookeryError("invalid-input", f"{checkout} has no commit to start from", "make one: git commit")
    return Base(await _branch_of_head(git, checkout) or commit, commit)


async def _branch_of_head(git: Git, checkout: Path) -> str | None:
    ran = await git.run(checkout, "symbolic-ref", "--quiet", "--short", "HEAD")
    return ran.stdout.decode("utf-8", "replace").strip() if ran.returncode == 0 else None


async def _commit(git: Git, checkout: Path, name: str) -> str | None:
    ran = await git.run(checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return ran.stdout.decode("ascii").strip() if ran.returncode == 0 else None
