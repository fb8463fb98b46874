"""Docker containers as context: those of this workspace first, with errors from their logs."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from rookery.files.context.section import Section
from rookery.system.errors import RookeryError

# Returns the engine's response to a path of its API; None if there is no engine, or it refuses.
QueryDocker = Callable[[str], Awaitable[bytes | None]]

_LIST_PATH = "/containers/json?all=true"
_LOGS_PATH = "/containers/{}/logs?stdout=true&stderr=true&tail=400"
# The label with the folder in which compose ran.
_COMPOSE_FOLDER_LABEL = "com.docker.compose.project.working_dir"
_MAX_CONTAINERS = 40
_MAX_LOGS = 8
# Marks containers of the main checkout in the contexts of its worktrees.
_SHARED = "shared with the main checkout"
_MAX_ERROR_LINES = 30
_LAST_LINES = 10
_ERRORS = re.compile(r"\b(error|exception|fatal|panic|critical|traceback|failed|failure|segfault)", re.IGNORECASE)
# The header of a frame of output without a terminal: the stream, three zeros, and the length.
_FRAME_HEADER_BYTES = 8


class Container(msgspec.Struct, rename="pascal"):
    """A container as the engine lists it."""

    id: str
    names: list[str] = []
    image: str = ""
    state: str = ""
    status: str = ""
    labels: dict[str, str] | None = None

    @property
    def name(self) -> str:
        return self.names[0].lstrip("/") if self.names else self.id[:12]

    @property
    def condition(self) -> str:
        """The state with health or exit code, without the duration, which would differ at every call."""
        return " ".join([self.state, *re.findall(r"\([^()]*\)", self.status)])

    @property
    def is_failing(self) -> bool:
        """Whether it is restarting, dead or unhealthy, or has failed."""
        bad = self.state in ("restarting", "dead") or "(unhealthy)" in self.status
        return bad or (self.state == "exited" and "Exited (0)" not in self.status)

    def belongs_to(self, root: Path, inner_workspaces: Sequence[tuple[str, ...]] = ()) -> bool:
        """Return whether compose ran in this workspace, and not in one of the `inner_workspaces` inside it."""
        folder = (self.labels or {}).get(_COMPOSE_FOLDER_LABEL)
        real = os.path.realpath(root)
        if folder is None or not (path := Path(os.path.realpath(folder))).is_relative_to(real):
            return False
        names = path.relative_to(real).parts
        return not any(names[: len(inner)] == inner for inner in inner_workspaces)

    def is_shared_by(self, main: Path) -> bool:
        """Return whether compose ran in this main checkout, and in no other worktree or repository inside it."""
        if not self.belongs_to(main):
            return False
        real = Path(os.path.realpath(main))
        folder = Path(os.path.realpath((self.labels or {})[_COMPOSE_FOLDER_LABEL]))
        between = [path for path in (folder, *folder.parents) if path.is_relative_to(real) and path != real]
        return not any((path / ".git").exists() for path in between)


async def build_docker_sections(
    query: QueryDocker,
    root: Path,
    list_inner_workspaces: Callable[[], Sequence[tuple[str, ...]]] = tuple,
    main: Path | None = None,
) -> list[Section]:
    """Return the sections about containers; none if no engine responds.

    Only logs of this workspace's containers are read, and of those that compose started from the main checkout: its
    worktrees use them together. `list_inner_workspaces` are the workspaces inside of this one, as names from the root.
    """
    response = await query(_LIST_PATH)
    if response is None:
        return []
    try:
        containers = msgspec.json.decode(response, type=list[Container])
    except msgspec.DecodeError:
        return []
    inner_workspaces = list_inner_workspaces()
    ours = [container for container in containers if container.belongs_to(root, inner_workspaces)]
    others = [container for container in containers if container not in ours]
    shared = [container for container in others if main is not None and container.is_shared_by(main)]
    rest = [container for container in others if container not in shared]
    text = _format_containers(ours, shared, rest)
    sections = [Section("docker", "Docker containers", 3 if ours or shared else 6, text)] if containers else []
    read = [*((container, "") for container in ours), *((container, _SHARED) for container in shared)][:_MAX_LOGS]
    logs = await asyncio.gather(*(_build_error_section(query, container, note) for container, note in read))
    return [*sections, *(section for section in logs if section is not None)]


def _format_containers(ours: list[Container], shared: list[Container], others: list[Container]) -> str:
    groups = ((ours, ", of this workspace"), (shared, f", {_SHARED}"), (others, ""))
    lines = [
        f"{container.name}: {container.condition}, image {container.image}{note}"
        for containers, note in groups
        for container in containers
    ]
    beyond = [f"[{len(lines) - _MAX_CONTAINERS} more]"] if len(lines) > _MAX_CONTAINERS else []
    return "\n".join([*lines[:_MAX_CONTAINERS], *beyond]) + "\n"


async def _build_error_section(query: QueryDocker, container: Container, note: str) -> Section | None:
    """Return the lines of its log about errors; for a failing container also the last lines."""
    title = f"Errors in the log of the container {container.name}{f' ({note})' if note else ''}"
    try:
        log = await query(_LOGS_PATH.format(container.id))
    except RookeryError as error:
        return Section(f"docker/{container.name}", title, 3, f"The log cannot be read: {error.message}\n")
    lines = decode_log(log).splitlines() if log else []
    last = len(lines) - _LAST_LINES if container.is_failing else len(lines)
    errors = [line for index, line in enumerate(lines) if index >= last or _ERRORS.search(line)][-_MAX_ERROR_LINES:]
    if not errors:
        return None
    return Section(f"docker/{container.name}", title, 3, "\n".join(errors) + "\n")


def decode_log(log: bytes) -> str:
    """Return the text of a log, which is plain if it comes from a terminal, else in frames."""
    framed = len(log) >= _FRAME_HEADER_BYTES and log[0] in (0, 1, 2) and log[1:4] == b"\0\0\0"
    return (b"".join(_split_frames(log)) if framed else log).decode("utf-8", "replace")


def _split_frames(log: bytes) -> Iterator[bytes]:
    offset = 0
    while offset + _FRAME_HEADER_BYTES <= len(log):
        length = int.from_bytes(log[offset + 4 : offset + _FRAME_HEADER_BYTES], "big")
        offset += _FRAME_HEADER_BYTES
        yield log[offset : offset + length]
        offset += length
