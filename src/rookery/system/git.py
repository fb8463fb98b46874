"""Run git. Reading a repository runs no program that the repository names.

No hook, fsmonitor, prompt or pager is started. A config that came with a repository may name programs as filters, merge
drivers or for ssh, and git has no option against that: each such key is overridden with the user's own value, or with
one that runs nothing. No other module runs git.

A program that writes to a worktree can replace its repository between that look at the config and the start of git. So
git is confined itself where confined programs write.
"""

import itertools
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from rookery.system.causes import describe_end, find_cause
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_plain
from rookery.system.process import environment
from rookery.system.process.spawn import CompletedCommand, Spawner

# Words in a config that can name a program, or include files that name one. A file without these words names none.
_PROGRAM_PATTERN = re.compile(
    rb"\[\s*(?:filter|merge|diff|include|credential|protocol|gpg)"
    rb"|sshcommand|askpass|gitproxy|alternaterefscommand|uploadpack",
    re.IGNORECASE,
)
_MAX_CONFIG_BYTES = 4 * 2**20
_MAX_INDEX_BYTES = 256 * 2**20
_MAX_DEPTH = 20
_KEY_OVERRIDES = {
    "diff.external": "",
    "core.sshcommand": "ssh",
    "core.askpass": "",
    "core.alternaterefscommand": "",
    "gpg.program": "gpg",
}
# Git uses the first value of these keys, so they cannot be overridden. They affect what a partial clone fetches on
# demand from a folder or by an unusual protocol: such fetches are not allowed.
_FETCH_KEYS = re.compile(r"remote\..+\.uploadpack|protocol\..+|core\.gitproxy")
_SAFE_PROTOCOLS = {"GIT_ALLOW_PROTOCOL": "http:https:ssh"}
# A merge driver that fails leaves a conflict, as a missing one should.
_SECTION_OVERRIDES = {
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

_BASE_OPTIONS = (
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.pager=cat",
    "-c",
    "gc.auto=0",
)
# Commands that check each submodule for changes, with another git process that uses the submodule's config.
_SUBMODULE_COMMANDS = ("diff", "diff-files", "status")
_TIMEOUT_SECONDS = 30.0
# How much of git's output is kept.
_MAX_OUTPUT_BYTES = 10_000_000
# Linux passes at most 128 KiB in one argument, and a character has up to 4 bytes.
_MAX_ARGUMENT_LENGTH = 32_000
# A file that was just written may be written again without a change of its timestamps.
SETTLED_SECONDS = 2.0


async def safe_environment(
    folder: Path, git: Callable[..., Awaitable[CompletedCommand]], *, submodules: bool = False
) -> dict[str, str]:
    """Return variables with which git runs no program that the repository of `folder`, or a submodule, names."""
    programs = await list_repository_programs(folder, git)
    for checkout in await _list_submodules(folder, git) if submodules else []:
        programs += await list_repository_programs(checkout, git)
    overrides = {key: value for key, _, value in programs if value is not None}
    env = {"GIT_CONFIG_COUNT": str(len(overrides))} if overrides else {}
    if len(overrides) < len({key for key, _, _ in programs}):
        env |= _SAFE_PROTOCOLS
    # Not `-c`: a name that contains "=" cannot be given there.
    for number, (key, value) in enumerate(overrides.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


async def _list_submodules(folder: Path, git: Callable[..., Awaitable[CompletedCommand]], depth: int = 0) -> list[Path]:
    """Return the checked-out submodules that git visits, recursively: each has a config of its own."""
    if not _has_submodules(folder):
        return []
    listed = await git(folder, "ls-files", "--stage", "-z", limit=_MAX_INDEX_BYTES)
    if listed.returncode != 0 or listed.cut or depth > _MAX_DEPTH:
        raise RookeryError("git-failed", f"cannot list the submodules of {folder}", "repair its git index")
    checkouts: list[Path] = []
    for entry in listed.stdout.split(b"\0"):
        path = folder / os.fsdecode(entry.partition(b"\t")[2])
        if entry.startswith(b"160000 ") and os.path.lexists(path / ".git"):
            checkouts += [path, *await _list_submodules(path, git, depth + 1)]
    return checkouts


def _has_submodules(folder: Path) -> bool:
    """Return whether the index may have an entry for a submodule; True if that cannot be determined."""
    own = find_git_folder(folder)
    if own is None:
        return True
    try:
        index = read_plain(f"{own}/index", _MAX_INDEX_BYTES)
        found = any(index.startswith(b"\0\0", position - 2) for position in _find_all(b"\xe0\0", index))
        return found or any(name.startswith("sharedindex.") for name in os.listdir(own))  # noqa: PTH208 - no path for each
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def _find_all(part: bytes, data: bytes) -> Iterator[int]:
    """Yield the positions of a part.

    The part omits the zeros at the start of a mode: an index has so many zeros that a search for them is slow.
    """
    position = data.find(part)
    while position >= 0:
        yield position
        position = data.find(part, position + 1)


async def list_repository_programs(
    folder: Path, git: Callable[..., Awaitable[CompletedCommand]]
) -> list[tuple[str, str, str | None]]:
    """Return each key of the repository's own config that names a program, its value, and its replacement."""
    if not _is_suspect(folder):
        return []
    listed = await git(folder, "config", "--list", "--show-scope", "-z")
    if listed.returncode != 0:
        message = listed.stderr.decode("utf-8", "replace").strip().removeprefix("fatal: ")
        raise RookeryError("git-failed", f"cannot read the git config of {folder}: {message}", "repair the config file")
    return list(parse_overrides(listed.stdout))


def parse_overrides(listed: bytes) -> Iterator[tuple[str, str, str | None]]:
    """Yield the same from the output of `git config --list --show-scope -z`."""
    parts = os.fsdecode(listed).removesuffix("\0").split("\0")
    entries = [(scope, *entry.partition("\n")[::2]) for scope, entry in zip(parts[::2], parts[1::2], strict=False)]
    user_values = {key: value for scope, key, value in entries if scope in ("system", "global")}
    for scope, key, value in entries:
        if scope not in ("local", "worktree"):
            continue
        section, _, rest = key.partition(".")
        variable = rest.rpartition(".")[2]
        replacement = _KEY_OVERRIDES.get(key)
        if replacement is None and ("." in rest or section == "credential"):
            replacement = _SECTION_OVERRIDES.get((section, variable))
        if _FETCH_KEYS.fullmatch(key):
            yield key, value, None
        elif replacement is not None:
            # Helpers accumulate, and an empty one clears those before it.
            yield key, value, replacement if section == "credential" else user_values.get(key, replacement)


def _is_suspect(folder: Path) -> bool:
    """Return whether the config files of a repository could name a program; True if that is uncertain."""
    git_folder = find_git_folder(folder)
    if git_folder is None:
        return True
    try:
        common = _resolve_named_folder(git_folder, read_plain(f"{git_folder}/commondir", _MAX_CONFIG_BYTES))
    except FileNotFoundError:
        common = git_folder
    except (OSError, ValueError):
        return True
    for file in (f"{common}/config", f"{git_folder}/config.worktree"):
        try:
            if _PROGRAM_PATTERN.search(read_plain(file, _MAX_CONFIG_BYTES)):
                return True
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return True
    return False


# Strings instead of Path objects from here on: this runs before each git command, and takes a fifth of the time.
def find_git_folder(folder: Path) -> str | None:
    """Return the git folder of the worktree that contains a folder; None if it cannot be determined for certain."""
    for parent in itertools.chain((folder,), folder.parents):
        git_path = f"{parent}/.git"
        try:
            if stat.S_ISDIR(_mode(f"{parent}/objects")) and stat.S_ISREG(_mode(f"{parent}/HEAD")):
                return None  # git treats it as a bare repository, whatever is around it
            if stat.S_ISDIR(_mode(git_path)):
                return git_path if stat.S_ISREG(_mode(f"{git_path}/HEAD")) else None
            content = read_plain(git_path, _MAX_CONFIG_BYTES)
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return None
        if not content.startswith(b"gitdir: "):
            return None
        return _resolve_named_folder(str(parent), content.removeprefix(b"gitdir: "))
    return None


def _resolve_named_folder(folder: str, content: bytes) -> str:
    """Return the folder that a file in `folder` names."""
    name = os.fsdecode(content.rstrip(b"\r\n"))
    return name if name.startswith("/") else f"{folder}/{name}"


def _mode(path: str) -> int:
    """Return the mode of a file; 0 if there is none."""
    try:
        return os.stat(path).st_mode  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return 0


class Git:
    """Runs git commands through a `Spawner`."""

    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner

    async def run(
        self,
        folder: Path,
        *args: str,
        timeout: float = _TIMEOUT_SECONDS,
        write: bool = False,
        trusted: bool = False,
        input: bytes | None = None,
        limit: int = _MAX_OUTPUT_BYTES,
    ) -> CompletedCommand:
        """Run git in `folder`, without the GIT_* variables of this process; the caller checks the return code.

        Without `write`, git takes no lock that it can do without. Programs that the repository's own config names
        (filters, merge drivers) run only if it is `trusted`; those of the user's config, such as LFS, do run.
        """
        for argument in args:
            if "\0" in argument or len(argument) > _MAX_ARGUMENT_LENGTH:
                message = f"git cannot take {argument[:40]!r}: it has a null character or is too long"
                raise RookeryError("invalid-input", message)
        env = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"} | (
            _ssh_agent_environment() if write else {"GIT_OPTIONAL_LOCKS": "0"}
        )
        if not trusted:
            env |= await safe_environment(folder, self._run_git, submodules=args[0] in _SUBMODULE_COMMANDS)
        # GIT_DIR and the like cannot redirect git: they are not in the allow-list.
        return await self._run_git(folder, *args, env=env, timeout=timeout, input=input, limit=limit)

    async def output(self, folder: Path, *args: str) -> bytes:
        """Run git and return its output without the last line feed; raise if it fails."""
        result = await self.run(folder, *args)
        if result.returncode != 0:
            raise git_error(folder, args[0], result)
        return result.stdout.removesuffix(b"\n")

    async def list_programs(self, folder: Path) -> str:
        """Return the programs that the repository's own config names, to be reviewed; empty if there are none."""
        return "\n".join(f"{key}={value}" for key, value, _ in await list_repository_programs(folder, self._run_git))

    async def _run_git(
        self,
        folder: Path,
        *args: str,
        env: dict[str, str] | None = None,
        timeout: float = _TIMEOUT_SECONDS,
        input: bytes | None = None,
        limit: int = _MAX_OUTPUT_BYTES,
    ) -> CompletedCommand:
        return await self._spawner.run(
            ["git", *_BASE_OPTIONS, *args],
            name=f"git {args[0]}",
            cwd=folder,
            env=environment.allowed_environment(env),
            timeout=timeout,
            input=input,
            limit=limit,
            confinement=self._spawner.find_confinement(folder),
        )

    async def main_checkout(self, folder: Path) -> Path:
        """Return the main worktree of the repository that contains `folder`; for a submodule, its own."""
        try:
            is_folder = folder.is_dir()
        except OSError:
            is_folder = False
        if not is_folder:
            raise _not_found(folder, "is not a readable folder", "use a folder inside a git repository")
        git_folder = await self._query(folder, "rev-parse", "--path-format=absolute", "--git-dir")
        if await self._query(folder, "rev-parse", "--is-bare-repository") == b"true":
            raise _not_found(folder, "is in a bare repository", "use a checkout that is not bare")
        if git_folder == await self._query(folder, "rev-parse", "--path-format=absolute", "--git-common-dir"):
            return Path(os.fsdecode(await self._query(folder, "rev-parse", "--show-toplevel")))
        listed = await self._query(folder, "worktree", "list", "--porcelain", "-z")
        return Path(os.fsdecode(listed.split(b"\0", 1)[0].removeprefix(b"worktree ")))

    async def _query(self, folder: Path, *args: str) -> bytes:
        result = await self.run(folder, *args)
        if result.returncode != 0:
            remedy = "use a folder inside a git repository, or create a repository: git init"
            raise _not_found(folder, f"is not in a usable git repository: {git_error_text(result)}", remedy)
        return result.stdout.removesuffix(b"\n")


def _ssh_agent_environment() -> dict[str, str]:
    """Return the variable of the user's ssh agent: a checkout may have to fetch, for LFS or in a partial clone."""
    agent = os.environ.get("SSH_AUTH_SOCK")
    return {"SSH_AUTH_SOCK": agent} if agent else {}


def git_error_text(result: CompletedCommand) -> str:
    """Return git's error message without its progress output."""
    output = result.stderr.decode("utf-8", "replace").strip()
    messages = [line.removeprefix("fatal: ").removeprefix("error: ") for line in output.splitlines() if ": " in line]
    return "; ".join(messages[-2:]) if len(output.splitlines()) > 1 else output.removeprefix("fatal: ")


def git_error(folder: Path, command: str, result: CompletedCommand) -> RookeryError:
    """Return the error for a git command that failed unexpectedly."""
    if b"dubious ownership" in result.stderr:
        return RookeryError(
            "repository-not-found",
            f"{folder} belongs to another user, so git refuses to use it",
            f"if you trust it: git config --global --add safe.directory {folder}",
        )
    cause = find_cause(result.returncode, result.stderr.decode("utf-8", "replace"), (folder,))
    if cause is not None:
        return RookeryError(cause.code, f"git {command} failed in {folder}: {cause.message}", cause.remedy)
    reason = git_error_text(result) or f"it {describe_end(result.returncode)}"
    return RookeryError("git-failed", f"git {command} failed in {folder}: {reason}")


def _not_found(folder: Path, reason: str, remedy: str) -> RookeryError:
    return RookeryError("repository-not-found", f"{folder} {reason}", remedy)


IndexMark = tuple[str, int, int, int, int]


def read_index_mark(folder: Path) -> IndexMark | None:
    """Return a value that changes with the index; None if the index is unreadable or has just changed."""
    git_folder = find_git_folder(folder)
    try:
        index = os.stat(f"{git_folder}/index", follow_symlinks=False) if git_folder else None  # noqa: PTH116
    except (OSError, ValueError):
        return None
    if index is None or SYSTEM_CLOCK.wall() - max(index.st_mtime, index.st_ctime) < SETTLED_SECONDS:
        return None
    return (str(git_folder), index.st_ino, index.st_size, index.st_mtime_ns, index.st_ctime_ns)
