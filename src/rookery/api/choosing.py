"""Which view a request chooses, by its path, its header and its query; and whether its token opens that one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

from starlette.types import Scope

from rookery.api.asked import Asked, asked_by
from rookery.gateway.names import BARE, Style
from rookery.system.errors import RookeryError
from rookery.wire.gate import Principal
from rookery.wire.head import Head
from rookery.workspaces.listing import Found

HEADER = b"x-workspace-path"
_LONGEST_PATH = 4096
# What a workspace's own endpoint has of ours; an agent's entry, at the app-wide one, has what the settings say.
_OF_A_WORKSPACE = frozenset({"project", "workspace"})
# The toolset that the servers behind us are counted to, where toolsets are chosen for somebody.
_HUB = "hub"


@dataclass(frozen=True)
class Choice:
    """What chooses a view. `missing` tells why there is none of the workspace that was asked for.

    `scope` is the one workspace whose things are shown, None where the owner asks, who may see all.
    """

    directory: Path | None
    server: str | None = None
    style: Style = field(default_factory=Style)
    toolsets: frozenset[str] = frozenset()
    servers: bool = True
    missing: str | None = None
    scope: Path | None = None
    # Whether tools are looked for instead of listed.
    search: bool = False


class Lookup(Protocol):
    """Where workspaces are found: by project and name, by path, or by their own git folder; None where there is none.

    `counts` tells whether the token of a workspace is still that of the workspace in its place.
    """

    @property
    def counts(self) -> Callable[[Path], bool]: ...

    async def named(self, project: str, name: str) -> Found | None: ...

    async def at(self, path: str) -> Found | None: ...

    async def with_own(self, own: Path) -> Found | None: ...


@dataclass(frozen=True)
class Chooser:
    """`toolsets` are all that there are, `agents` those that agents get. `search` is what who asks for no mode gets."""

    lookup: Lookup
    toolsets: frozenset[str]
    agents: frozenset[str]
    search: bool = False

    async def choose(self, scope: Scope, beside: str) -> Choice:
        """`beside` is the path without its last part, every name in it percent-encoded in the same way."""
        principal: Principal = scope["state"]["principal"]
        asked = asked_by(scope["query_string"])
        if principal.workspace is not None and not self.lookup.counts(principal.workspace):
            raise _forbidden()
        if beside:
            return await self._by_path(principal, beside, asked)
        ours = self.toolsets if principal.workspace is None else self.agents
        servers = principal.workspace is None or _HUB in self.agents
        given = Head.of(scope["headers"]).all(HEADER)
        found = await self._by_header(principal, given)
        if found is None and not given and principal.workspace is None:
            return Choice(None, None, asked.style, self._narrowed(ours, asked), servers, search=self._searched(asked))
        directory = found.workspace.path if found is not None and _is_there(found) else None
        missing = None if directory is not None else "no workspace is registered at the path in X-Workspace-Path"
        if missing is not None and not given:
            missing = "the workspace of this token has no folder any more"
        only = directory if principal.workspace is not None else None
        toolsets, search = self._narrowed(ours, asked), self._searched(asked)
        return Choice(directory, None, asked.style, toolsets, servers, missing, only, search)

    async def _by_header(self, principal: Principal, sent: Sequence[bytes]) -> Found | None:
        mine = principal.workspace
        if not sent:
            return await self.lookup.with_own(mine) if mine is not None else None
        found = await self._at(_sent(sent))
        if mine is not None and (found is None or found.own != mine):
            raise _forbidden()
        return found

    async def _at(self, given: str) -> Found | None:
        """Literally first: a folder's own name may look as if it were encoded."""
        found = await self.lookup.at(given) if given.startswith("/") else None
        if found is not None:
            return found
        try:
            decoded = unquote(given, errors="strict")
        except UnicodeDecodeError:
            raise RookeryError("invalid-input", "X-Workspace-Path is not valid UTF-8") from None
        if not decoded.startswith("/") or "\0" in decoded:
            raise RookeryError("invalid-input", "X-Workspace-Path must be an absolute path")
        return await self.lookup.at(decoded) if decoded != given else None

    async def _by_path(self, principal: Principal, beside: str, asked: Asked) -> Choice:
        style, toolsets, search = asked.style, self._narrowed(_OF_A_WORKSPACE, asked), self._searched(asked)
        # Every name is one percent-encoded segment.
        match beside.split("/")[2:]:
            case [project, workspace]:
                server = None
            case [project, workspace, "s", server] if server:
                server, style, toolsets = unquote(server), BARE, frozenset[str]()
                # Who wants one server wants its tools, unless he says otherwise.
                search = asked.search or False
            case _:
                raise RookeryError("route-not-found", "there is no endpoint at this path")
        found = await self.lookup.named(unquote(project), unquote(workspace))
        if principal.workspace is not None and (found is None or found.own != principal.workspace):
            raise _forbidden()
        if found is None or not _is_there(found):
            raise RookeryError("workspace-not-found", f"there is no workspace {project}/{workspace}")
        only = found.workspace.path if principal.workspace is not None else None
        return Choice(found.workspace.path, server, style, toolsets, scope=only, search=search)

    async def is_taken(self, beside: str) -> bool:
        """Whether the name in this path is that of a workspace now."""
        names = [unquote(part) for part in beside.split("/")[2:4]]
        return len(names) == 2 and await self.lookup.named(*names) is not None

    def usual(self, directory: Path) -> Choice:
        """What a workspace's own endpoint shows to whoever asks for nothing else."""
        asked = Asked()
        return Choice(directory, toolsets=self._narrowed(_OF_A_WORKSPACE, asked), search=self._searched(asked))

    def _narrowed(self, ours: frozenset[str], asked: Asked) -> frozenset[str]:
        return self.toolsets & ours if asked.toolsets is None else self.toolsets & ours & asked.toolsets

    def _searched(self, asked: Asked) -> bool:
        return self.search if asked.search is None else asked.search


def address(parts: Sequence[str]) -> str:
    """The path of these parts, each percent-encoded in the same way."""
    return "/".join(quote(unquote(part), safe="@") for part in parts)


def _is_there(found: Found) -> bool:
    return found.workspace.state not in ("missing", "deleting")


def _sent(sent: Sequence[bytes]) -> str:
    """What stands in `X-Workspace-Path`, which may be percent-encoded. It authorises nothing."""
    if len(sent) > 1 or len(sent[0]) > _LONGEST_PATH:
        raise RookeryError("invalid-input", f"send X-Workspace-Path once, with at most {_LONGEST_PATH} bytes")
    try:
        return sent[0].decode()
    except UnicodeDecodeError:
        raise RookeryError("invalid-input", "X-Workspace-Path is not valid UTF-8") from None


def _forbidden() -> RookeryError:
    return RookeryError("forbidden", "the token of a workspace opens that workspace and no other")
