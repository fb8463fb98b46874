"""The only way to call git. Nothing of a repository runs by being read: no hook, no fsmonitor, no prompt, no pager."""

import os
from pathlib import Path

from rookery.system import environment
from rookery.system.errors import RookeryError
from rookery.system.git_config import harmless, own_programs
from rookery.system.spawn import Completed, Spawner

_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.pager=cat", "-c", "gc.auto=0")
# What asks each submodule whether it has changed, by a git of its own that heeds the config there.
_LOOKING_INTO_SUBMODULES = ("diff", "diff-files", "status")
_SECONDS = 30.0
# How much of what git prints is kept.
_BYTES = 10_000_000


class Git:
    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner

    async def run(
        self,
        folder: Path,
        *args: str,
        timeout: float = _SECONDS,
        write: bool = False,
        trusted: bool = False,
        input: bytes | None = None,
        limit: int = _BYTES,
    ) -> Completed:
        """Run git in `folder`, whatever GIT_* this process carries; the caller judges the return code.

        Without `write`, git takes no lock that it can do without. Programs that the repository's own config names
        (filters, merge drivers) run only if it is `trusted`; the user's, such as LFS, do run.
        """
        env = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"} | (_signed_in() if write else {"GIT_OPTIONAL_LOCKS": "0"})
        if not trusted:
            env |= await harmless(folder, self._bare, submodules=args[0] in _LOOKING_INTO_SUBMODULES)
        # The folder is not git's to choose: GIT_DIR and its like are not in the allow-list.
        return await self._bare(folder, *args, env=env, timeout=timeout, input=input, limit=limit)

    async def told(self, folder: Path, *args: str) -> bytes:
        """What git prints, without its last line's end; an error if it fails."""
        ran = await self.run(folder, *args)
        if ran.returncode != 0:
            raise failed(folder, args[0], ran)
        return ran.stdout.removesuffix(b"\n")

    async def own_programs(self, folder: Path) -> str:
        """The programs that the repository's own config names, to be shown and approved; nothing if there are none."""
        return "\n".join(f"{key}={value}" for key, value, _ in await own_programs(folder, self._bare))

    async def _bare(
        self,
        folder: Path,
        *args: str,
        env: dict[str, str] | None = None,
        timeout: float = _SECONDS,
        input: bytes | None = None,
        limit: int = _BYTES,
    ) -> Completed:
        return await self._spawner.run(
            ["git", *_QUIET, *args],
            name=f"git {args[0]}",
            cwd=folder,
            env=environment.allowed(env),
            timeout=timeout,
            input=input,
            limit=limit,
        )

    async def main_checkout(self, folder: Path) -> Path:
        """The main worktree of the repository that `folder` lies in; of a submodule, its own."""
        try:
            there = folder.is_dir()
        except OSError:
            there = False
        if not there:
            raise _not_found(folder, "is not a folder that can be read", "name a folder inside a git repository")
        own = await self._place(folder, "rev-parse", "--path-format=absolute", "--git-dir")
        if await self._place(folder, "rev-parse", "--is-bare-repository") == b"true":
            raise _not_found(folder, "is in a bare repository", "name a checkout that is not bare")
        if own == await self._place(folder, "rev-parse", "--path-format=absolute", "--git-common-dir"):
            return Path(os.fsdecode(await self._place(folder, "rev-parse", "--show-toplevel")))
        listed = await self._place(folder, "worktree", "list", "--porcelain", "-z")
        return Path(os.fsdecode(listed.split(b"\0", 1)[0].removeprefix(b"worktree ")))

    async def _place(self, folder: Path, *args: str) -> bytes:
        ran = await self.run(folder, *args)
        if ran.returncode != 0:
            remedy = "name a folder inside a git repository, or make one: git init"
            raise _not_found(folder, f"is not in a usable git repository: {reason(ran)}", remedy)
        return ran.stdout.removesuffix(b"\n")


def _signed_in() -> dict[str, str]:
    """The user's ssh agent: a checkout may have to fetch, for LFS or in a partial clone."""
    agent = os.environ.get("SSH_AUTH_SOCK")
    return {"SSH_AUTH_SOCK": agent} if agent else {}


def reason(ran: Completed) -> str:
    """What git says went wrong, without what it prints on the way."""
    said = ran.stderr.decode("utf-8", "replace").strip()
    found = [line.removeprefix("fatal: ").removeprefix("error: ") for line in said.splitlines() if ": " in line]
    return "; ".join(found[-2:]) if len(said.splitlines()) > 1 else said.removeprefix("fatal: ")


def failed(folder: Path, command: str, ran: Completed) -> RookeryError:
    """The error for a git command that should have worked."""
    if b"dubious ownership" in ran.stderr:
        return RookeryError(
            "repository-not-found",
            f"{folder} belongs to another user, and git does not use it",
            f"if you trust it: git config --global --add safe.directory {folder}",
        )
    return RookeryError("git-failed", f"git {command} failed in {folder}: {reason(ran)}")


def _not_found(folder: Path, why: str, remedy: str) -> RookeryError:
    return RookeryError("repository-not-found", f"{folder} {why}", remedy)
