"""The justfiles of repositories as something to approve: a task of one runs whatever stands there."""

import logging
import os
from pathlib import Path
from typing import Literal

from rookery.daemon import brought
from rookery.files.just import Just, find_justfile
from rookery.files.just_shown import justfile_text
from rookery.files.recipes import Justfile
from rookery.guard.approvals import Approvals
from rookery.guard.subject import Subject
from rookery.system.errors import RookeryError
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.record import Workspace
from rookery.workspaces.service import Workspaces

logger = logging.getLogger("rookery.daemon")

KIND = "justfile"
Rule = Literal["changed", "always", "never"]

_UNTOLD = "it turns unstable features on, of which just does not tell all"


class Justfiles:
    """That of a main checkout is approved by adding its project, unless the user wants to be asked `always`.

    Every other content is asked about, by what just reads: where the folder lies and how it is written is all one.
    """

    def __init__(
        self, approvals: Approvals, projects: Projects, workspaces: Workspaces, just: Just, rule: Rule
    ) -> None:
        self._approvals, self._projects, self._workspaces = approvals, projects, workspaces
        self._just, self._rule = just, rule

    async def approve_with(self, project: Project) -> None:
        if self._rule == "changed":
            await brought.approve_with(project, [await self._found(project, Path(project.path))], self._approvals)

    async def may_run(self, workspace: Workspace, justfile: Justfile) -> bool:
        if self._rule == "never":
            return True
        return await self._approvals.state(_subject(workspace.project, workspace.path, justfile)) == "approved"

    async def require(self, workspace: Workspace, justfile: Justfile) -> None:
        """Refuse what is not approved, and say what a person can do about it."""
        if await self.may_run(workspace, justfile):
            return
        subject = _subject(workspace.project, workspace.path, justfile)
        if subject.problem:
            raise RookeryError(
                "needs-approval",
                f"the justfile of this workspace cannot be approved: {subject.problem}",
                "leave them out, or have the user set just.approval = never",
            )
        changed = "has changed since it was" if await self._approvals.last(subject.key) is not None else "is not"
        raise RookeryError(
            "needs-approval",
            f"the justfile of this workspace {changed} approved, and none of its tasks runs",
            "ask the user to look at it, and to approve it in a terminal: rookery guard approve justfile",
        )

    async def waiting(self) -> list[Subject]:
        if self._rule == "never":
            return []
        return await brought.in_all_workspaces(KIND, self._found, self._projects, self._workspaces)

    async def _found(self, project: Project, root: Path) -> Subject | None:
        try:
            if find_justfile(root) is None:
                return None
            return _subject(project, root, await self._just.listed(root))
        except RookeryError as error:
            logger.info("the justfile in %s cannot be told: %s", root, error.message)
            return None


def _subject(project: Project, root: Path, justfile: Justfile) -> Subject:
    place = os.path.realpath(project.path)
    files = {KIND: justfile.fingerprint}
    problem = "" if justfile.whole else _UNTOLD
    return Subject(KIND, place, KIND, justfile_text(justfile.content), files, str(root), problem, str(root))
