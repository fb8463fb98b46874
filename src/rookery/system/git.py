"""The only way to call git. Nothing of a repository runs by being read: no hook, no fsmonitor, no prompt, no pager."""

import os
from pathlib import Path

from rookery.system import environment
from rookery.system.errors import RookeryError
from rookery.system.spawn import Completed, Spawner

_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.pager=cat", "-c", "gc.auto=0")
_SECONDS = 30.0


class Git:
    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner

    async def run(self, folder: Path, *args: str, timeout: float = _SECONDS) -> Completed:
        """Run git in `folder`, whatever GIT_* this process carries; the caller judges the return code."""
        env = environment.allowed({"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"})
        # The folder is not git's to choose: GIT_DIR and its like are not in the allow-list.
        return await self._spawner.run(
            ["git", *_QUIET, *args], name=f"git {args[0]}", cwd=folder, env=env, timeout=timeout
        )

    async def main_checkout(self, folder: Path) -> Path:
        """The main worktree of the repository that `folder` lies in; of a submodule, its own."""
        try:
            there = folder.is_dir()
        except OSError:
            there = False
        if not there:
            raise _not_found(folder, "is not a folder that can be read", "name a folder inside a git repository")
        own = await self._told(folder, "rev-parse", "--path-format=absolute", "--git-dir")
        if await self._told(folder, "rev-parse", "--is-bare-repository") == b"true":
            raise _not_found(folder, "is in a bare repository", "name a checkout that is not bare")
        if own == await self._told(folder, "rev-parse", "--path-format=absolute", "--git-common-dir"):
            return Path(os.fsdecode(await self._told(folder, "rev-parse", "--show-toplevel")))
        listed = await self._told(folder, "worktree", "list", "--porcelain", "-z")
        return Path(os.fsdecode(listed.split(b"\0", 1)[0].removeprefix(b"worktree ")))

    async def _told(self, folder: Path, *args: str) -> bytes:
        """What git prints, without its last line's end."""
        ran = await self.run(folder, *args)
        if ran.returncode != 0:
            reason = ran.stderr.decode("utf-8", "replace").strip().removeprefix("fatal: ")
            remedy = "name a folder inside a git repository, or make one: git init"
            raise _not_found(folder, f"is not in a usable git repository: {reason}", remedy)
        return ran.stdout.removesuffix(b"\n")


def _not_found(folder: Path, why: str, remedy: str) -> RookeryError:
    return RookeryError("repository-not-found", f"{folder} {why}", remedy)
