"""The containers of a docker engine: those of this workspace first, with what their logs say of errors."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from rookery.files.context.section import Section
from rookery.system.errors import RookeryError

# What the engine answers to a path of its API; None if no engine is there, or it says no.
AskEngine = Callable[[str], Awaitable[bytes | None]]

_LIST = "/containers/json?all=true"
_LOGS = "/containers/{}/logs?stdout=true&stderr=true&tail=400"
# Where compose was run.
_FOLDER = "com.docker.compose.project.working_dir"
_MOST, _MOST_LOGS = 40, 8
_LINES, _LAST = 30, 10
_ERRORS = re.compile(r"\b(error|exception|fatal|panic|critical|traceback|failed|failure|segfault)", re.IGNORECASE)
# How an engine frames output that is no terminal's: the stream, three zeros, and the length.
_HEADER = 8


class Container(msgspec.Struct, rename="pascal"):
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
        """With its health or exit code, and without how long it is so, which would be new at every look."""
        return " ".join([self.state, *re.findall(r"\([^()]*\)", self.status)])

    @property
    def is_ill(self) -> bool:
        bad = self.state in ("restarting", "dead") or "(unhealthy)" in self.status
        return bad or (self.state == "exited" and "Exited (0)" not in self.status)

    def belongs_to(self, root: Path, others: Sequence[tuple[str, ...]]) -> bool:
        folder, real = (self.labels or {}).get(_FOLDER), os.path.realpath(root)
        if folder is None or not (place := Path(os.path.realpath(folder))).is_relative_to(real):
            return False
        names = place.relative_to(real).parts
        return not any(names[: len(inner)] == inner for inner in others)


async def docker_sections(
    ask: AskEngine, root: Path, others: Callable[[], Sequence[tuple[str, ...]]] = tuple
) -> list[Section]:
    """Nothing if no engine answers. The logs are those of this workspace's own containers alone.

    `others` are the workspaces inside of it, as names from the root.
    """
    answer = await ask(_LIST)
    if answer is None:
        return []
    try:
        every = msgspec.json.decode(answer, type=list[Container])
    except msgspec.DecodeError:
        return []
    inside = others()
    ours = [one for one in every if one.belongs_to(root, inside)]
    rest = [one for one in every if one not in ours]
    found = [Section("docker", "Docker containers", 3 if ours else 6, _list(ours, rest))] if every else []
    logs = await asyncio.gather(*(_errors(ask, one) for one in ours[:_MOST_LOGS]))
    return [*found, *(one for one in logs if one is not None)]


def _list(ours: list[Container], others: list[Container]) -> str:
    lines = [f"{one.name}: {one.condition}, image {one.image}, of this workspace" for one in ours]
    lines += [f"{one.name}: {one.condition}, image {one.image}" for one in others]
    beyond = [f"[{len(lines) - _MOST} more]"] if len(lines) > _MOST else []
    return "\n".join([*lines[:_MOST], *beyond]) + "\n"


async def _errors(ask: AskEngine, one: Container) -> Section | None:
    """The lines of its log that speak of errors; of one that is not well also its last ones."""
    title = f"Errors in the log of the container {one.name}"
    try:
        log = await ask(_LOGS.format(one.id))
    except RookeryError as error:
        return Section(f"docker/{one.name}", title, 3, f"It cannot be told: {error.message}\n")
    lines = log_text(log).splitlines() if log else []
    last = len(lines) - _LAST if one.is_ill else len(lines)
    told = [line for place, line in enumerate(lines) if place >= last or _ERRORS.search(line)][-_LINES:]
    if not told:
        return None
    return Section(f"docker/{one.name}", title, 3, "\n".join(told) + "\n")


def log_text(log: bytes) -> str:
    """The text of a log, whichever way it comes: as it is from a terminal, else in frames."""
    framed = len(log) >= _HEADER and log[0] in (0, 1, 2) and log[1:4] == b"\0\0\0"
    return (b"".join(_frames(log)) if framed else log).decode("utf-8", "replace")


def _frames(log: bytes) -> Iterator[bytes]:
    place = 0
    while place + _HEADER <= len(log):
        length = int.from_bytes(log[place + 4 : place + _HEADER], "big")
        place += _HEADER
        yield log[place : place + length]
        place += length
