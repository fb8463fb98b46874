"""The definition of one MCP server: command or address, limits, and the file it comes from."""

import hashlib
import json
import unicodedata
from typing import Any, Literal

import msgspec

from rookery.wire.client.client import Timeouts
from rookery.wire.client.stdio import Framing

ServerKind = Literal["local", "remote"]
Transport = Literal["auto", "http", "sse"]
ServerScope = Literal["app", "project", "workspace", "session"]
ConfigLevel = Literal["project", "user"]
Dialect = Literal["rookery", "dispatch", "opencode", "claude"]
# Wildcards with whether matching tools are offered; the last match wins.
ToolFilter = tuple[tuple[str, bool], ...]

# These do not affect the process or connection: a change of them does not need a new one.
_NOT_DIGESTED = frozenset(
    {"enabled", "tools", "tool_limits", "source", "written", "digest", "written_digest", "unresolved"}
)

MAX_NAME_LENGTH = 200
_CONTROL = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI_CONTROL = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


class Source(msgspec.Struct, frozen=True):
    """The position of a definition; line 0 if it is in no file. Only those of a project need approval."""

    path: str
    line: int
    dialect: Dialect
    place: ConfigLevel

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


class ConfigProblem(msgspec.Struct, frozen=True):
    """Something in a file that is not used as it is written. A `note` does not prevent anything from working."""

    file: str
    line: int
    message: str
    remedy: str = ""
    server: str | None = None
    note: bool = False

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}: {self.message}"
        return f"{text} ({self.remedy})" if self.remedy else text


class ServerSandbox(msgspec.Struct, frozen=True):
    """What a local server may reach: the files of its workspace, or those that are listed, and the network.

    Paths are absolute, begin with `~`, or are relative to the folder of the workspace.
    """

    files: Literal["off", "workspace", "read-only", "listed"]
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool = True


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """One server. `environment`, `headers`, `command` and `url` are the values after substitution.

    `tools` are wildcards with whether matching tools are offered; the last match wins, and without any all are offered.
    Each of `tool_limits` has to offer a tool too. `unresolved` says which placeholder has no value: the server fails.
    `written` is the entry as a person wrote it, with placeholders: it is shown, and approved by `written_digest`.
    `digest` covers everything that decides what runs; two definitions with the same digest can share a process.
    """

    name: str
    kind: ServerKind
    source: Source
    command: tuple[str, ...] = ()
    cwd: str | None = None
    environment: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    transport: Transport = "auto"
    enabled: bool = True
    timeouts: Timeouts = Timeouts()
    framing: Framing = "lines"
    inherit: bool = False
    # None stands for what the settings say.
    sandbox: ServerSandbox | None = None
    scope: ServerScope = "workspace"
    exclusive: bool = False
    # None stands for what `is_told_root` says.
    roots: bool | None = None
    calls: int = 32
    queue: int = 128
    idle_seconds: float = 600.0
    tools: ToolFilter = ()
    tool_limits: tuple[ToolFilter, ...] = ()
    oauth: dict[str, Any] | Literal[False] | None = None
    written: dict[str, Any] = {}
    digest: str = ""
    written_digest: str = ""
    unresolved: str = ""

    @property
    def tool_filters(self) -> tuple[ToolFilter, ...]:
        """The filters that all have to offer a tool."""
        return (self.tools, *self.tool_limits)

    @property
    def is_app_wide(self) -> bool:
        """Whether one instance serves all directories. A repository's server is approved for, and serves, only one."""
        return self.scope == "app" and self.source.place == "user"

    @property
    def is_shared(self) -> bool:
        """Whether one instance serves several directories, and so belongs to none of them."""
        return self.scope in ("app", "project") and self.source.place == "user"

    @property
    def is_told_root(self) -> bool:
        """Whether it is told the workspace as its root. A repository's server is, unless its definition says no.

        The user's own may be for another folder, and some servers replace the folders in their arguments by the root.
        """
        return self.roots if self.roots is not None else self.source.place == "project"

    def __repr__(self) -> str:
        """Return a text without possible secrets: no arguments, addresses, headers or variables."""
        return f"<Definition {self.name!r} {self.kind} {self.digest[:12]} from {self.source}>"


def find_name_problem(name: str) -> str | None:
    """Return why a server cannot have this name, or None. A name becomes part of addresses and log lines."""
    if not name or name != name.strip() or name in (".", ".."):
        return "is empty, consists of dots only, or starts or ends with a space"
    if len(name) > MAX_NAME_LENGTH:
        return f"is longer than {MAX_NAME_LENGTH} characters"
    if "/" in name or any(_is_invisible(character) for character in name):
        return 'contains a "/" or a control character'
    if name == "__proto__":
        return "means something else to clients in JavaScript"
    return None


def _is_invisible(character: str) -> bool:
    # Line ends and bidirectional controls, with which a name can look like another one.
    return unicodedata.category(character) in _CONTROL or unicodedata.bidirectional(character) in _BIDI_CONTROL


def add_digests(definition: Definition) -> Definition:
    """Return the definition with both digests."""
    fields = msgspec.to_builtins(definition)
    digested = {key: value for key, value in fields.items() if key not in _NOT_DIGESTED}
    return msgspec.structs.replace(definition, digest=_hash(digested), written_digest=_hash(definition.written))


def _hash(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON. The order of keys does not matter, that of lists does."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
