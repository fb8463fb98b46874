"""What is known of an MCP server before it is started: what to run or reach, within which limits, and who says so."""

import hashlib
import json
import unicodedata
from typing import Any, Literal

import msgspec

from rookery.wire.client import Timeouts
from rookery.wire.client_stdio import Framing

Kind = Literal["local", "remote"]
Transport = Literal["auto", "http", "sse"]
Scope = Literal["app", "project", "workspace", "session"]
Place = Literal["project", "user"]
Dialect = Literal["rookery", "dispatch", "opencode", "claude"]

# Decide nothing about the process or connection itself: to change them needs no new one.
_NOT_DIGESTED = frozenset({"enabled", "tools", "source", "written", "digest", "written_digest"})

LONGEST_NAME = 200
_CONTROL = frozenset({"Cc", "Cs", "Zl", "Zp"})
_TURNING = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


class Source(msgspec.Struct, frozen=True):
    """Where a definition stands, line 0 if in no file. A project's waits for approval, the user's own does not."""

    path: str
    line: int
    dialect: Dialect
    place: Place

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


class Problem(msgspec.Struct, frozen=True):
    """Something in a file that is not used as it stands. A `note` keeps nothing from working."""

    file: str
    line: int
    message: str
    remedy: str = ""
    server: str | None = None
    note: bool = False

    def __str__(self) -> str:
        told = f"{self.file}:{self.line}: {self.message}"
        return f"{told} ({self.remedy})" if self.remedy else told


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """One server. `environment`, `headers`, `command` and `url` are what they come to after substitution.

    `tools` are wildcards with whether they are offered; the last that fits counts, and without any all are.
    `written` is the entry as a person wrote it, with placeholders: this is shown and approved, by `written_digest`.
    `digest` is over all that decides what runs; two definitions with the same one can share a process.
    """

    name: str
    kind: Kind
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
    scope: Scope = "workspace"
    exclusive: bool = False
    calls: int = 32
    queue: int = 128
    idle_seconds: float = 600.0
    tools: tuple[tuple[str, bool], ...] = ()
    oauth: dict[str, Any] | Literal[False] | None = None
    written: dict[str, Any] = {}
    digest: str = ""
    written_digest: str = ""

    @property
    def everywhere(self) -> bool:
        """Whether one serves all directories. A repository's own is approved for one, and serves that one only."""
        return self.scope == "app" and self.source.place == "user"

    def __repr__(self) -> str:
        """Without anything that may be a secret: arguments, addresses, headers and variables all may."""
        return f"<Definition {self.name!r} {self.kind} {self.digest[:12]} from {self.source}>"


def wrong_with_name(name: str) -> str | None:
    """Why a server cannot be called that; None if it can. A name becomes a part of addresses and of log lines."""
    if not name or name != name.strip() or name in (".", ".."):
        return "is empty, is only dots, or has space around it"
    if len(name) > LONGEST_NAME:
        return f"is longer than {LONGEST_NAME} characters"
    if "/" in name or any(_unseen(character) for character in name):
        return 'has a "/" or a control character in it'
    return None


def _unseen(character: str) -> bool:
    # Line ends, and the marks that make text run backwards: with them a name looks like another one.
    return unicodedata.category(character) in _CONTROL or unicodedata.bidirectional(character) in _TURNING


def sealed(definition: Definition) -> Definition:
    """The definition with both its hashes."""
    told = msgspec.to_builtins(definition)
    deciding = {key: value for key, value in told.items() if key not in _NOT_DIGESTED}
    return msgspec.structs.replace(definition, digest=_hash(deciding), written_digest=_hash(definition.written))


def _hash(value: Any) -> str:
    """SHA-256 of the canonical JSON: the order of names does not count, that of a list does."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
