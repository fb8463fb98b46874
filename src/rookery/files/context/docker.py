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
_MAX_CONTAINERS, _MAX_LOGS = 40, 8
_MAX_ERROR_LINES, _LAST_LINES = 30, 10
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

    def belongs_to(self, root: Path, inner_workspaces: Sequence[tuple[str, ...]]) -> bool:
        """Return whether compose ran in this workspace, and not in one of the `inner_workspaces` inside it."""
        folder, real = (self.labels or {}).get(_COMPOSE_FOLDER_LABEL), os.path.realpath(root)
        if folder is None or not (path := Path(os.path.realpath(folder))).is_relative_to(real):
            return False
        names = path.relative_to(real).parts
        return not any(names[: len(inner)] == inner for inner in inner_workspaces)


async def build_docker_sections(
    query: QueryDocker, root: Path, list_inner_workspaces: Callable[[], Sequence[tuple[str, ...]]] = tuple
) -> list[Section]:
    """Return the sections about containers; none if no engine responds. Only this workspace's logs are read.

    `list_inner_workspaces` are the workspaces inside of it, as names from the root.
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
    rest = [container for container in containers if container not in ours]
    sections = (
        [Section("docker", "Docker containers", 3 if ours else 6, _format_containers(ours, rest))] if containers else []
    )
    logs = await asyncio.gather(*(_build_error_section(query, container) for container in ours[:_MAX_LOGS]))
    return [*sections, *(section for section in logs if section is not None)]


def _format_containers(ours: list[Container], others: list[Container]) -> str:
    lines = [
        f"{container.name}: {container.condition}, image {container.image}, of this workspace" for container in ours
    ]
    lines += [f"{container.name}: {container.condition}, image {container.image}" for container in others]
    beyond = [f"[{len(lines) - _MAX_CONTAINERS} more]"] if len(lines) > _MAX_CONTAINERS else []
    return "\n".join([*lines[:_MAX_CONTAINERS], *beyond]) + "\n"


async def _build_error_section(query: QueryDocker, container: Container) -> Section | None:
    """Return the lines of its log about errors; for a failing container also the last lines."""
    title = f"Errors in the log of the container {container.name}"
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
