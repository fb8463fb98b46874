"""Repository content that needs the user's approval: justfiles, OpenCode configs, plugins and lock files.

Registering a project approves the content of its main checkout, but only the first time, with an intact store, and if
the user does it. All other content needs an explicit approval, in every workspace.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Literal

from rookery.agents.opencode.project_config import APPROVAL_KIND, ParseJson, ProjectConfig, read_project_config
from rookery.files.just.recipes import Justfile
from rookery.files.just.run import JustRunner, find_justfile
from rookery.files.just.show import format_justfile
from rookery.guard.approvals import Approvals
from rookery.guard.lock.compare import has_same_definition
from rookery.guard.lock.file import LOCK_FILE, LockedServer, format_lock, read_lock
from rookery.guard.pins.records import LockedPins, PinnedServer
from rookery.guard.pins.store import PinStore
from rookery.guard.subject import Key, Subject
from rookery.guard.terminal import find_objection, require_person
from rookery.operations.servers.lock import describe_definition
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_beneath
from rookery.system.process.table import ProcessesChanged, list_ancestry
from rookery.upstreams.config.definition import Definition
from rookery.wire.http.auth import OWNER_LOCAL, get_calling_process, is_socket_call
from rookery.workspaces.model import Workspace
from rookery.workspaces.projects import ApprovedContent, Project, Projects
from rookery.workspaces.service import Workspaces

logger = logging.getLogger("rookery.daemon")

_NOT_BY_USER = "a process that Rookery started adds it, or a model by calling a tool"
_USED = "Rookery has worked in this repository before"

# Returns the content of one kind in the main checkout of a project.
ApprovalSource = Callable[[Project], Awaitable[Sequence[Subject]]]

JUSTFILE = "justfile"
_UNSTABLE_FEATURES = "it enables unstable features, which just does not fully report"
LOCK = "mcp-lock"
PLUGIN = "plugin"
PLUGIN_FOLDER = PurePath(".rookery", "plugins")
LARGEST_PLUGIN = 1_000_000
MOST_PLUGINS = 100


class ProjectApprovals:
    """The `RegistrationHooks` of the daemon. Notifies the daemon of each key whose approval is withdrawn."""

    def __init__(
        self, approvals: Approvals, sources: Sequence[ApprovalSource], on_decision: Callable[[Key], Awaitable[None]]
    ) -> None:
        self._approvals = approvals
        self._sources = sources
        self._on_decision = on_decision

    async def on_registering(self, project: Project, *, named: Path, used: bool, by_user: bool | None) -> str:
        """Record the registration of a project, and return why it approves nothing; an empty string if it does."""
        try:
            # The path as spelled: a symbolic link may lead elsewhere the next time.
            refusal = await self._approvals.register(os.path.realpath(project.path), os.path.normpath(named))
        except RookeryError as error:
            # A store that does not know earlier registrations cannot vouch for this one.
            refusal = error.message
        if not await is_added_by_user() if by_user is None else not by_user:
            return _NOT_BY_USER
        return refusal or (_USED if used else "")

    async def on_registered(self, project: Project, refusal: str) -> tuple[Sequence[ApprovedContent], str]:
        """Approve the content of the main checkout unless `refusal` is set; return the approved content and a note."""
        approved: list[ApprovedContent] = []
        waiting: list[str] = []
        for subject in [subject for source in self._sources for subject in await source(project)]:
            if subject.problem:
                logger.warning("%s: its %s is not approved: %s", project.id, subject.name, subject.problem)
            if await self._approvals.state(subject) == "approved":
                continue
            if refusal or subject.problem:
                waiting.append(subject.name)
                continue
            await self._approvals.approve(subject, subject.digest, "adding")
            approved.append(ApprovedContent(subject.kind, subject.name, subject.digest))
        if not refusal or not waiting:
            return approved, ""
        note = f"adding this project approves nothing because {refusal}; these need approval: {', '.join(waiting)}"
        logger.warning("%s: %s", project.id, note)
        return approved, note

    async def on_removing(self, project: Project) -> None:
        """Withdraw all approvals of a project."""
        for key in await self._approvals.forget(os.path.realpath(project.path)):
            await self._on_decision(key)


class WorkspaceFolders:
    """Records the folders of open workspaces, because nothing that is added there counts as the user's own."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals

    async def on_opened(self, workspace: Workspace) -> None:
        if not workspace.main:
            await self._approvals.note_folder(os.path.realpath(workspace.path))

    async def on_closed(self, workspace: Workspace) -> bool:
        return False


async def is_added_by_user() -> bool:
    """Return whether the calling process was not started by any Rookery, and so may approve.

    Otherwise an agent could write anything into a repository, and add that repository. Callers over a port have
    presented the owner's token.
    """
    if not is_socket_call():
        return True
    try:
        await require_person(OWNER_LOCAL, get_calling_process(), at_terminal=False)
    except RookeryError as error:
        logger.info("adding this project approves nothing: %s", error.message)
        return False
    return True


def why_started_by_rookery() -> str | None:
    """Return why this daemon counts as started by Rookery itself, for example by an agent; None if a user did it."""
    try:
        return find_objection(list_ancestry(os.getpid()), at_terminal=False)
    except ProcessesChanged:
        return "the processes that started this daemon were being replaced"


# Returns the subject in a folder of a project, if there is one.
FindSubject = Callable[[Project, Path], Awaitable[Subject | None]]


async def find_in_all_workspaces(
    kind: str, find: FindSubject, projects: Projects, workspaces: Workspaces
) -> list[Subject]:
    """Return the subjects in all workspaces of all projects; skip projects that cannot be read."""
    subjects: list[Subject | None] = []
    for project in await projects.all():
        try:
            entries = await workspaces.finder.list_located(project)
        except RookeryError as error:
            logger.info("project %s: its %s cannot be read: %s", project.id, kind, error.message)
            continue
        present = [entry.workspace for entry in entries if entry.workspace.state != "missing"]
        # One after the other: many at once would take the threads and processes that other work needs.
        subjects += [await find(project, workspace.path) for workspace in present]
    return [subject for subject in subjects if subject is not None]


JustfileRule = Literal["changed", "always", "never"]


class JustfileApprovals:
    """Approvals of justfiles: adding a project approves that of its main checkout, unless the rule is `always`.

    All other content needs an explicit approval. What just reads is compared: neither the folder's location nor the
    formatting of the file counts.
    """

    def __init__(
        self, approvals: Approvals, projects: Projects, workspaces: Workspaces, just: JustRunner, rule: JustfileRule
    ) -> None:
        self._approvals = approvals
        self._projects = projects
        self._workspaces = workspaces
        self._just = just
        self._rule = rule

    async def list_in_main_checkout(self, project: Project) -> list[Subject]:
        """Return the subjects that adding the project approves."""
        subject = await self._find_subject(project, Path(project.path)) if self._rule == "changed" else None
        return [subject] if subject is not None else []

    async def may_run(self, workspace: Workspace, justfile: Justfile) -> bool:
        """Return whether the tasks of a justfile may run: it is approved, or needs no approval."""
        if self._rule == "never":
            return True
        return await self._approvals.state(_justfile_subject(workspace.project, workspace.path, justfile)) == "approved"

    async def require(self, workspace: Workspace, justfile: Justfile) -> None:
        """Raise `needs-approval`, with a remedy for the user, if the justfile is not approved."""
        if await self.may_run(workspace, justfile):
            return
        subject = _justfile_subject(workspace.project, workspace.path, justfile)
        if subject.problem:
            raise RookeryError(
                "needs-approval",
                f"the justfile of this workspace cannot be approved: {subject.problem}",
                "remove the unstable features, or ask the user to set just.approval = never",
            )
        changed = "has changed since it was" if await self._approvals.find_newest(subject.key) is not None else "is not"
        raise RookeryError(
            "needs-approval",
            f"the justfile of this workspace {changed} approved, so none of its tasks can run",
            "ask the user to look at it, and to approve it in a terminal: rookery guard approve justfile",
        )

    async def list_subjects(self) -> list[Subject]:
        if self._rule == "never":
            return []
        return await find_in_all_workspaces(JUSTFILE, self._find_subject, self._projects, self._workspaces)

    async def _find_subject(self, project: Project, root: Path) -> Subject | None:
        try:
            if find_justfile(root) is None:
                return None
            return _justfile_subject(project, root, await self._just.read_justfile(root))
        except RookeryError as error:
            logger.info("the justfile in %s cannot be read: %s", root, error.message)
            return None


def _justfile_subject(project: Project, root: Path, justfile: Justfile) -> Subject:
    place = os.path.realpath(project.path)
    files = {JUSTFILE: justfile.fingerprint}
    problem = "" if justfile.is_complete else _UNSTABLE_FEATURES
    return Subject(JUSTFILE, place, JUSTFILE, format_justfile(justfile.content), files, str(root), problem, str(root))


class OpenCodeConfigApprovals:
    """Approvals of OpenCode configs: adding a project approves that of its main checkout.

    All other content needs an explicit approval.
    """

    def __init__(self, approvals: Approvals, projects: Projects, workspaces: Workspaces, read: ParseJson) -> None:
        self._approvals = approvals
        self._projects = projects
        self._workspaces = workspaces
        self._read = read

    async def list_in_main_checkout(self, project: Project) -> list[Subject]:
        """Return the subjects that adding the project approves."""
        subject = await self._subject(project, Path(project.path))
        return [subject] if subject is not None else []

    async def explain_unapproved(self, workspace: Workspace) -> str:
        """Return why the config in a workspace has no effect; an empty string if there is none or it is approved."""
        subject = await self._subject(workspace.project, workspace.path)
        if subject is None or await self._approvals.state(subject) == "approved":
            return ""
        detail = f" and cannot be approved: {subject.problem}" if subject.problem else ""
        return f"the repository's own OpenCode config is not approved, and has no effect{detail}"

    async def list_subjects(self) -> list[Subject]:
        return await find_in_all_workspaces(APPROVAL_KIND, self._subject, self._projects, self._workspaces)

    async def _subject(self, project: Project, root: Path) -> Subject | None:
        config = await asyncio.to_thread(read_project_config, root, self._read)
        return _config_subject(config, project, root) if config is not None else None


def _config_subject(config: ProjectConfig, project: Project, root: Path) -> Subject:
    place = os.path.realpath(project.path)
    return Subject(
        APPROVAL_KIND, place, APPROVAL_KIND, config.content, config.files, str(root), config.problem, str(root)
    )


class PluginApprovals:
    """Approvals of plugins: only those of the main checkout count, and adding a project approves those that it has.

    Files that agents write in their workspaces are not read.
    """

    def __init__(self, approvals: Approvals, projects: Projects) -> None:
        self._approvals = approvals
        self._projects = projects

    async def read_subjects(self, project: Project) -> list[Subject]:
        """Read the plugins anew: the text that is returned is the text to approve and to run."""
        try:
            return await asyncio.to_thread(_read_plugins, Path(project.path))
        except OSError as error:
            logger.info("the plugins of %s cannot be read: %s", project.id, error)
            return []

    async def is_approved(self, subject: Subject) -> bool:
        return await self._approvals.state(subject) == "approved"

    async def list_subjects(self) -> list[Subject]:
        return [subject for project in await self._projects.all() for subject in await self.read_subjects(project)]


def _read_plugins(root: Path) -> list[Subject]:
    try:
        names = sorted(path.name for path in (root / PLUGIN_FOLDER).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    plugin_names = [name for name in names if name.endswith(".py") and not name.startswith((".", "_"))]
    if len(plugin_names) > MOST_PLUGINS:
        logger.warning(
            "%s holds %d plugins; only the first %d are used",
            root / PLUGIN_FOLDER,
            len(plugin_names),
            MOST_PLUGINS,
        )
    return [_plugin_subject(root, name) for name in plugin_names[:MOST_PLUGINS] if name.isprintable()]


def _plugin_subject(root: Path, name: str) -> Subject:
    content = ""
    problem = ""
    try:
        content = read_beneath(root, PLUGIN_FOLDER / name, LARGEST_PLUGIN).decode()
    except UnicodeDecodeError:
        problem = "it is not in UTF-8"
    except OSError as error:
        link = error.errno == errno.ELOOP
        problem = "its path contains a symbolic link" if link else f"it cannot be read: {error.strerror}"
    return Subject(
        PLUGIN, os.path.realpath(root), name, content, source=str(root / PLUGIN_FOLDER / name), problem=problem
    )


class LockFiles:
    """mcp.lock of all workspaces, as a source of pins. `find_project` returns the main checkout of a checkout.

    Anybody who can write into a checkout can write the file, so it alone releases nothing. Without an approval it only
    limits a first listing, which would be pinned as it is otherwise. With an approval of exactly this content it also
    releases what has changed since. In neither case does it start a server, or release severe findings.
    """

    def __init__(
        self,
        approvals: Approvals,
        pins: PinStore,
        projects: Projects,
        workspaces: Workspaces,
        find_project: Callable[[Path], Path],
    ) -> None:
        self._approvals = approvals
        self._pins = pins
        self._projects = projects
        self._workspaces = workspaces
        self._find_project = find_project

    async def find_pins(self, definition: Definition, checkout: Path | None) -> LockedPins | None:
        """Return the pins that the file of a checkout has for a server; None if it has none for this definition.

        Of a file that cannot be read nothing is known, and so nothing fits it.
        """
        is_of_repository = definition.source.place == "project"
        if checkout is None or definition.is_shared:
            # It serves several projects, and the file of one must not decide for the others.
            return None
        try:
            _, servers = await asyncio.to_thread(read_lock, checkout)
        except RookeryError as error:
            logger.warning("%s: %s", definition.name, error.message)
            return LockedPins({}) if is_of_repository else None
        locked = servers.get(definition.name)
        # The hash of hidden values takes long to compute.
        if locked is None or not await asyncio.to_thread(_is_about, locked, definition):
            return None
        subject = _lock_subject(servers, self._find_project(checkout))
        is_approved = await self._approvals.state(subject) == "approved"
        # A stranger's repository must not withhold tools of the user's own servers.
        return LockedPins(locked.pins, is_approved) if is_of_repository or is_approved else None

    async def list_subjects(self) -> list[Subject]:
        """Return the files that are approved, and those with which an approval would release something."""
        waiting = [server for server in await self._pins.list_servers() if _list_waiting(server)]

        async def find(project: Project, root: Path) -> Subject | None:
            try:
                text, servers = await asyncio.to_thread(read_lock, root)
            except RookeryError as error:
                logger.info("%s", error.message)
                return None
            if not text:
                return None
            place = os.path.realpath(project.path)
            subject = _lock_subject(servers, Path(place), str(root / LOCK_FILE))
            if await self._approvals.state(subject) == "approved" or any(
                _would_release(servers, server) for server in waiting if server.place in ("", place)
            ):
                return subject
            return None

        return await find_in_all_workspaces(LOCK, find, self._projects, self._workspaces)


def _lock_subject(servers: Mapping[str, LockedServer], place: Path, source: str = "") -> Subject:
    """Return the file as a subject of approval. What the lines say is approved, in whatever order they are."""
    return Subject(LOCK, os.path.realpath(place), LOCK_FILE, format_lock(servers.values()), source=source)


def _is_about(locked: LockedServer, definition: Definition) -> bool:
    return has_same_definition(locked, describe_definition(definition))


def _list_waiting(server: PinnedServer) -> list[tuple[object, str]]:
    """Return key and digest of what waits and a lock file may release."""
    return [(pin.key, pin.digest) for pin in server.pins if pin.state == "waiting" and pin.reason != "severe"]


def _would_release(servers: Mapping[str, LockedServer], server: PinnedServer) -> bool:
    locked = servers.get(server.name)
    return locked is not None and any((key, digest) in locked.pins.items() for key, digest in _list_waiting(server))
