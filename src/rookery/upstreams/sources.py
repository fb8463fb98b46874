"""Which files define servers for a directory, in which order they count, and what they come to together."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from rookery.system import places
from rookery.upstreams.definition import Definition, Dialect, Problem
from rookery.upstreams.permissions import Permissions
from rookery.upstreams.reading import File, Read, read

_OF_PROJECT: tuple[tuple[str, Dialect], ...] = (
    (".rookery/mcp.json", "rookery"),
    (".dispatch/mcp.json", "dispatch"),
    ("opencode.json", "opencode"),
    ("opencode.jsonc", "opencode"),
    (".opencode/opencode.json", "opencode"),
    (".opencode/opencode.jsonc", "opencode"),
    (".mcp.json", "claude"),
)


class Found(msgspec.Struct):
    """The servers of a directory, by name; whom they stand before; and what is wrong in the files."""

    servers: list[Definition] = []
    shadowed: list[Definition] = []
    problems: list[Problem] = []
    permissions: Permissions = Permissions()


def files_of(directory: Path | None) -> list[File]:
    """Where servers may be defined, highest first; without a directory only what the user defines for everywhere."""
    config = places.config_folder()
    opencode = [config.parent / "opencode", Path.home() / ".opencode"]
    root = directory.resolve() if directory else None
    own = [File(root / name, dialect, root) for name, dialect in _OF_PROJECT] if root else []
    return [
        *own,
        File(config / "mcp.json", "rookery"),
        *(File(folder / name, "opencode") for folder in opencode for name in ("opencode.json", "opencode.jsonc")),
    ]


def find(directory: Path | None, environment: Mapping[str, str]) -> Found:
    """Read all files of a directory once. Never raises: what is wrong is in `problems`."""
    return merge(read(file, environment) for file in files_of(directory))


def merge(sources: Iterable[Read]) -> Found:
    """One entry for each name, whole, from the highest source that has it."""
    found, taken, off = Found([], [], []), set[str](), dict[str, tuple[str, int]]()
    for one in sources:
        found.problems += one.problems
        found.permissions = one.parsed.permissions.after(found.permissions)
        for name, definition in one.parsed.definitions.items():
            if name in taken:
                found.shadowed.append(definition)
                continue
            taken.add(name)
            found.servers.append(msgspec.structs.replace(definition, enabled=False) if name in off else definition)
        for name, source in one.parsed.off.items():
            if name not in taken:
                off.setdefault(name, (source.path, source.line))
    for name, (path, line) in off.items():
        told = "turned off here" if name in taken else "turned off here, but defined nowhere"
        found.problems.append(Problem(path, line, f'the server "{name}" is {told}', "", name, note=True))
    return found
