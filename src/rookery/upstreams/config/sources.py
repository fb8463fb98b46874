"""The configuration files of a directory: which are read, in which order, and their merged result.

A file in a repository can only name files of that repository. Entries that point to Rookery itself are left out:
clients keep its address in the files that servers are read from.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from urllib.parse import urlsplit

import msgspec

from rookery.system.causes import describe_error
from rookery.system.fs import paths
from rookery.system.fs.atomic import read_beneath, read_plain
from rookery.upstreams.config.definition import ConfigLevel, ConfigProblem, Definition, Dialect
from rookery.upstreams.config.dialects import ParsedFile, parse_file
from rookery.upstreams.config.jsonc import MAX_LENGTH, JsoncError
from rookery.upstreams.config.overrides import EntryOverride, apply_override
from rookery.upstreams.config.permissions import Permissions
from rookery.upstreams.config.placeholders import Substitution

_MAX_VALUE_BYTES = 65_536

_PROJECT_FILES: tuple[tuple[str, Dialect], ...] = (
    (".rookery/mcp.json", "rookery"),
    (".dispatch/mcp.json", "dispatch"),
    ("opencode.json", "opencode"),
    ("opencode.jsonc", "opencode"),
    (".opencode/opencode.json", "opencode"),
    (".opencode/opencode.jsonc", "opencode"),
    (".mcp.json", "claude"),
)
_LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
# Rookery's own entries in the files of clients name this variable; the port of a workspace may not be open now.
_TOKEN_VARIABLE = "ROOKERY_TOKEN"


@dataclass(frozen=True)
class ConfigFile:
    """A file that may define servers. `root` is the repository that it belongs to, None if it is the user's own."""

    path: Path
    dialect: Dialect
    root: Path | None = None

    @property
    def place(self) -> ConfigLevel:
        return "user" if self.root is None else "project"


@dataclass
class LoadedFile:
    """The content of a file. `failure` says why it could not be read; `named_files` are the files that it names."""

    file: ConfigFile
    parsed: ParsedFile = field(default_factory=ParsedFile)
    failure: ConfigProblem | None = None
    named_files: set[Path] = field(default_factory=set[Path])

    @property
    def problems(self) -> list[ConfigProblem]:
        return [self.failure, *self.parsed.problems] if self.failure else self.parsed.problems


def load_file(file: ConfigFile, environment: Mapping[str, str]) -> LoadedFile:
    """Read a file. Never raises; a file that does not exist has no content."""
    loaded = LoadedFile(file)
    try:
        text = read_config_text(file)
    except (FileNotFoundError, NotADirectoryError):
        return loaded
    except (OSError, UnicodeDecodeError) as error:
        remedy = "make it a regular file that you can read, or remove it"
        loaded.failure = ConfigProblem(str(file.path), 1, f"cannot be read: {describe_error(error)}", remedy)
        return loaded

    def content_of(name: str) -> str:
        path = _resolve_named_file(file, name)
        loaded.named_files.add(path)
        return _read_text(file, path, _MAX_VALUE_BYTES)

    substitution = Substitution(file.dialect, environment, content_of, show_files=file.root is not None)
    try:
        loaded.parsed = parse_file(text, str(file.path), file.dialect, file.place, substitution)
    except JsoncError as error:
        loaded.failure = ConfigProblem(
            str(file.path), error.line, error.message, "fix it; its changes are ignored until then"
        )
    return loaded


def read_config_text(file: ConfigFile) -> str:
    """Return the text of a configuration file. Raise OSError or UnicodeDecodeError if it cannot be read."""
    return _read_text(file, file.path, MAX_LENGTH)


def _read_text(file: ConfigFile, path: Path, limit: int) -> str:
    if file.root is None:
        return read_plain(path, limit).decode()
    return read_beneath(file.root, path.relative_to(file.root), limit).decode()


def _resolve_named_file(file: ConfigFile, name: str) -> Path:
    """Return the path of `{file:name}`, relative to the file that contains it, and never outside its repository."""
    if file.root is None:
        return Path.home() / name[2:] if name.startswith("~/") else file.path.parent / name
    path = Path(os.path.normpath(file.path.parent / name))
    if name.startswith("~") or not path.is_relative_to(file.root) or _is_in_git_folder(path.relative_to(file.root)):
        raise OSError("a file of a repository can refer only to files of that repository")
    return path


def _is_in_git_folder(path: Path) -> bool:
    """Return whether a path is in `.git`, which may contain the credentials of remotes."""
    return ".git" in {part.lower() for part in path.parts}


class ServerConfig(msgspec.Struct):
    """The servers of a directory, the definitions that they shadow, and the problems in the files."""

    servers: list[Definition] = []
    shadowed: list[Definition] = []
    problems: list[ConfigProblem] = []
    permissions: Permissions = Permissions()


def list_config_files(directory: Path | None) -> list[ConfigFile]:
    """Return the files that may define servers, highest first; without a directory only the user's own."""
    config = paths.config_folder()
    opencode = [config.parent / "opencode", Path.home() / ".opencode"]
    root = directory.resolve() if directory else None
    own = [ConfigFile(root / name, dialect, root) for name, dialect in _PROJECT_FILES] if root else []
    return [
        *own,
        ConfigFile(config / "mcp.json", "rookery"),
        *(ConfigFile(folder / name, "opencode") for folder in opencode for name in ("opencode.json", "opencode.jsonc")),
    ]


def load_config(directory: Path | None, environment: Mapping[str, str]) -> ServerConfig:
    """Read all files of a directory once. Never raises; errors are in `problems`."""
    return merge_files(load_file(file, environment) for file in list_config_files(directory))


def merge_files(sources: Iterable[LoadedFile]) -> ServerConfig:
    """Return one entry for each name, from the highest source that defines it.

    Entries of higher sources that only set options change it. Those of the lowest source are applied first.
    """
    config = ServerConfig([], [], [])
    names = set[str]()
    overrides = dict[str, list[EntryOverride]]()
    for loaded in sources:
        config.problems += loaded.problems
        config.permissions = loaded.parsed.permissions.after(config.permissions)
        for name, definition in loaded.parsed.definitions.items():
            if name in names:
                config.shadowed.append(definition)
                continue
            names.add(name)
            for override in reversed(overrides.get(name, [])):
                definition = apply_override(definition, override)
            config.servers.append(definition)
        for name, override in loaded.parsed.overrides.items():
            if name not in names:
                overrides.setdefault(name, []).append(override)
    for name, changes in overrides.items():
        config.problems += [_note_override(name, override, is_defined=name in names) for override in changes]
    return config


def _note_override(name: str, override: EntryOverride, *, is_defined: bool) -> ConfigProblem:
    source = override.source
    what = "turned off" if override.turns_off else "changed"
    if is_defined or override.turns_off:
        state = f"{what} here" if is_defined else f"{what} here, but defined nowhere"
        return ConfigProblem(source.path, source.line, f'the server "{name}" is {state}', "", name, note=True)
    message = f'the server "{name}": it has neither a command nor a url, and no other file defines it'
    remedy = 'a local server has a "command", a remote one a "url"'
    return ConfigProblem(source.path, source.line, message, remedy, name)


def exclude_self(config: ServerConfig, ports: Collection[int], *, with_notes: bool = True) -> ServerConfig:
    """Return a configuration without the servers that lead back to Rookery: each would wait for itself.

    Problems of these entries are left out too, such as a token that is not set: they concern the client that they
    belong to.
    """
    own = [server for server in config.servers if _is_bridge(server) or _points_to_self(server, ports)]
    if not own:
        return config
    own_keys = {(server.source.path, server.name) for server in own}
    problems = [problem for problem in config.problems if (problem.file, problem.server) not in own_keys]
    notes = [
        ConfigProblem(
            server.source.path,
            server.source.line,
            f'the server "{server.name}" is Rookery itself and is left out',
            note=True,
        )
        for server in own
    ]
    others = [server for server in config.servers if server not in own]
    return msgspec.structs.replace(config, servers=others, problems=[*problems, *notes] if with_notes else problems)


def _points_to_self(definition: Definition, ports: Collection[int]) -> bool:
    parts = urlsplit(definition.url)
    return parts.hostname in _LOOPBACK_HOSTS and (
        parts.port in ports or _TOKEN_VARIABLE in str(definition.written.get("headers"))
    )


def _is_bridge(definition: Definition) -> bool:
    """Return whether a server is `rookery bridge`, under any path."""
    program, *words = definition.command or ("",)
    return PurePath(program).name == "rookery" and words[:1] == ["bridge"]
