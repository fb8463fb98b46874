"""Programs that a repository's own config names do not run by our asking; those of the user's config do.

A config that is cloned or unpacked along with a repository may name programs as filters, merge drivers or for ssh. Git
has no switch against that: each such key is overridden with the user's own value, or with one that runs nothing.
"""

import itertools
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.system.files import read_plain
from rookery.system.spawn import Completed

# What may name a program, or bring further files in which one is named. If a file has none of these words, none is.
_SUSPECT = re.compile(
    rb"\[\s*(?:filter|merge|diff|include|credential|protocol|gpg)"
    rb"|sshcommand|askpass|gitproxy|alternaterefscommand|uploadpack",
    re.IGNORECASE,
)
_LARGEST = 4 * 2**20
_LARGEST_INDEX = 256 * 2**20
_DEEPEST = 20
_ALONE = {
    "diff.external": "",
    "core.sshcommand": "ssh",
    "core.askpass": "",
    "core.alternaterefscommand": "",
    "gpg.program": "gpg",
}
# Of these git takes the first value that it finds, so that none can be overridden. They count for what a partial clone
# fetches on the way, from a folder or by an odd protocol: such fetches are left out.
_FETCHING = re.compile(r"remote\..+\.uploadpack|protocol\..+|core\.gitproxy")
_PLAIN_PROTOCOLS = {"GIT_ALLOW_PROTOCOL": "http:https:ssh"}
# A merge driver that fails leaves a conflict, as one that is missing should.
_BY_NAME = {
    ("filter", "clean"): "",
    ("filter", "smudge"): "",
    ("filter", "process"): "",
    ("filter", "required"): "false",
    ("merge", "driver"): "false",
    ("diff", "command"): "",
    ("diff", "textconv"): "",
    ("credential", "helper"): "",
    ("gpg", "program"): "gpg",
    ("gpg", "defaultkeycommand"): "",
}


async def harmless(
    folder: Path, git: Callable[..., Awaitable[Completed]], *, submodules: bool = False
) -> dict[str, str]:
    """The environment in which git runs no program that the repository of `folder` names, or one of its submodules."""
    named = await own_programs(folder, git)
    for place in await _checkouts_in(folder, git) if submodules else []:
        named += await own_programs(place, git)
    found = {key: instead for key, _, instead in named if instead is not None}
    env = {"GIT_CONFIG_COUNT": str(len(found))} if found else {}
    if len(found) < len({key for key, _, _ in named}):
        env |= _PLAIN_PROTOCOLS
    # Not `-c`: a name with "=" in it cannot be given there.
    for number, (key, instead) in enumerate(found.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": instead}
    return env


async def _checkouts_in(folder: Path, git: Callable[..., Awaitable[Completed]], depth: int = 0) -> list[Path]:
    """The submodules that git looks into on its way, and theirs: each has a config of its own, which counts there."""
    if not _has_submodules(folder):
        return []
    listed = await git(folder, "ls-files", "--stage", "-z", limit=_LARGEST_INDEX)
    if listed.returncode != 0 or listed.cut or depth > _DEEPEST:
        raise RookeryError("git-failed", f"the submodules of {folder} cannot be told", "mend its index")
    found: list[Path] = []
    for entry in listed.stdout.split(b"\0"):
        place = folder / os.fsdecode(entry.partition(b"\t")[2])
        if entry.startswith(b"160000 ") and os.path.lexists(place / ".git"):
            found += [place, *await _checkouts_in(place, git, depth + 1)]
    return found


def _has_submodules(folder: Path) -> bool:
    """Whether the index may have an entry of that mode; where that cannot be told, yes."""
    own = git_folder(folder)
    if own is None:
        return True
    try:
        index = read_plain(f"{own}/index", _LARGEST_INDEX)
        found = any(index.startswith(b"\0\0", at - 2) for at in _each(b"\xe0\0", index))
        return found or any(name.startswith("sharedindex.") for name in os.listdir(own))  # noqa: PTH208 - no path for each
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def _each(part: bytes, data: bytes) -> Iterator[int]:
    """Where a part is found. A mode begins with zeros, of which an index has so many that to look for them is slow."""
    at = data.find(part)
    while at >= 0:
        yield at
        at = data.find(part, at + 1)


async def own_programs(folder: Path, git: Callable[..., Awaitable[Completed]]) -> list[tuple[str, str, str | None]]:
    """Each key of the repository's own config that names a program, its value, and what to put in its place if any."""
    if not _is_suspect(folder):
        return []
    listed = await git(folder, "config", "--list", "--show-scope", "-z")
    if listed.returncode != 0:
        said = listed.stderr.decode("utf-8", "replace").strip().removeprefix("fatal: ")
        raise RookeryError("git-failed", f"the git config of {folder} cannot be read: {said}", "mend it")
    return list(overrides(listed.stdout))


def overrides(listed: bytes) -> Iterator[tuple[str, str, str | None]]:
    """The same, from what `git config --list --show-scope -z` prints."""
    parts = os.fsdecode(listed).removesuffix("\0").split("\0")
    entries = [(scope, *entry.partition("\n")[::2]) for scope, entry in zip(parts[::2], parts[1::2], strict=False)]
    users = {key: value for scope, key, value in entries if scope in ("system", "global")}
    for scope, key, value in entries:
        if scope not in ("local", "worktree"):
            continue
        section, _, rest = key.partition(".")
        last = rest.rpartition(".")[2]
        instead = _ALONE.get(key)
        if instead is None and ("." in rest or section == "credential"):
            instead = _BY_NAME.get((section, last))
        if _FETCHING.fullmatch(key):
            yield key, value, None
        elif instead is not None:
            # Helpers add up, and an empty one forgets those before it.
            yield key, value, instead if section == "credential" else users.get(key, instead)


def _is_suspect(folder: Path) -> bool:
    """Whether the config files of a repository could name a program; where that cannot be told, yes."""
    own = git_folder(folder)
    if own is None:
        return True
    try:
        common = _place(own, read_plain(f"{own}/commondir", _LARGEST))
    except FileNotFoundError:
        common = own
    except (OSError, ValueError):
        return True
    for place in (f"{common}/config", f"{own}/config.worktree"):
        try:
            if _SUSPECT.search(read_plain(place, _LARGEST)):
                return True
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return True
    return False


# Texts and not paths from here on: this is asked before each git command, and takes a fifth of the time.
def git_folder(folder: Path) -> str | None:
    """The git folder of the worktree that a folder lies in; None where that cannot be told for certain."""
    for above in itertools.chain((folder,), folder.parents):
        place = f"{above}/.git"
        try:
            if stat.S_ISDIR(_mode(f"{above}/objects")) and stat.S_ISREG(_mode(f"{above}/HEAD")):
                return None  # a bare repository, for git, whatever lies around it
            if stat.S_ISDIR(_mode(place)):
                return place if stat.S_ISREG(_mode(f"{place}/HEAD")) else None
            named = read_plain(place, _LARGEST)
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return None
        if not named.startswith(b"gitdir: "):
            return None
        return _place(str(above), named.removeprefix(b"gitdir: "))
    return None


def _place(folder: str, named: bytes) -> str:
    """The folder that is named in a file in `folder`."""
    name = os.fsdecode(named.rstrip(b"\r\n"))
    return name if name.startswith("/") else f"{folder}/{name}"


def _mode(path: str) -> int:
    """What kind of file there is, if any."""
    try:
        return os.stat(path).st_mode  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return 0
