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
        """The main worktree of the repository that `folder` lies in."""
        if not folder.is_dir():
            raise RookeryError(
                "repository-not-found", f"{folder} is not a folder", "name a folder inside a git repository"
            )
        listed = await self.run(folder, "worktree", "list", "--porcelain", "-z")
        if listed.returncode != 0:
            reason = listed.stderr.decode("utf-8", "replace").strip().removeprefix("fatal: ")
            remedy = "name a folder inside a git repository, or make one: git init"
            raise RookeryError("repository-not-found", f"{folder} is not in a usable git repository: {reason}", remedy)
        first = listed.stdout.split(b"\0\0", 1)[0].split(b"\0")
        if b"bare" in first:
            raise RookeryError(
                "repository-not-found", f"{folder} is in a bare repository", "name a checkout that is not bare"
            )
        return Path(os.fsdecode(first[0].removeprefix(b"worktree ")))
