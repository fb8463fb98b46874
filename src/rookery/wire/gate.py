"""Who may pass: Host, Origin, content type and token, judged on the request's head before anything else runs.

Pure functions over headers. A token authorises; every other header only selects.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from rookery.wire.head import STATUS_LINES, Head, Headers

# The only thing to be had without a token: that somebody is at home.
OPEN = frozenset({("GET", "/api/health"), ("HEAD", "/api/health")})
# What the token of a workspace opens; which workspace it is there is judged where that is known.
_FOR_WORKSPACES = frozenset({"/mcp", "/sse", "/messages", "/ws"})
_BELOW_FOR_WORKSPACES = ("/w/", "/socket.io/")
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
# What long polling of Socket.IO posts is text. It is worth nothing without an id that a web page cannot read.
_TAKES_TEXT = "/socket.io/"


@dataclass(frozen=True)
class Principal:
    """Who is calling: the owner, over the socket or by token, a workspace, or whoever may only ask for health.

    `workspace` is the worktree's own git folder, which stays the same when the worktree is moved.
    """

    kind: Literal["owner", "workspace", "anybody"]
    local: bool = False
    workspace: Path | None = None

    @property
    def name(self) -> str:
        """By which one is told from another."""
        return self.kind if self.workspace is None else f"{self.kind} {self.workspace}"


@dataclass(frozen=True)
class Peer:
    """The process that opened a connection to the Unix socket: `state["peer"]` of its requests."""

    pid: int
    started: float


@dataclass(frozen=True)
class Refusal:
    """An answer that ends the request; the connection is closed after it."""

    status: int
    code: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def encoded(self) -> bytes:
        body = msgspec.json.encode({"error": {"code": self.code, "message": self.message}})
        lines = [b"%b: %b\r\n" % header for header in self.headers]
        lines.append(b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body))
        return b"".join((STATUS_LINES[self.status], *lines, b"connection: close\r\n\r\n", body))


OWNER = Principal("owner")
OWNER_LOCAL = Principal("owner", local=True)
ANYBODY = Principal("anybody")

Judge = Callable[[str, str, Headers], Principal | Refusal]


class Tokens:
    """Tokens by their hash, so that a look-up takes the same time whatever was sent."""

    def __init__(self) -> None:
        self._known: dict[bytes, Principal] = {}
        # Another one whenever they have changed.
        self.version = object()

    def add(self, token: str, principal: Principal) -> None:
        self._known[hashlib.sha256(token.encode()).digest()] = principal
        self.version = object()

    def remove(self, token: str) -> None:
        self._known.pop(hashlib.sha256(token.encode()).digest(), None)
        self.version = object()

    def find(self, token: bytes) -> Principal | None:
        return self._known.get(hashlib.sha256(token).digest())


def tcp_judge(port: int, tokens: Tokens, *, require_token: bool = True) -> Judge:
    """The rules for a TCP port on 127.0.0.1."""
    hosts = frozenset({b"127.0.0.1:%d" % port, b"localhost:%d" % port})
    origins = frozenset(b"http://" + host for host in hosts)

    def judge(method: str, path: str, headers: Headers) -> Principal | Refusal:
        head = Head.of(headers)
        # A request that is the same as the one before, head and all, is judged again only if the tokens have changed.
        if head.judged is None or head.judged[0] is not tokens.version:
            head.judged = tokens.version, decide(method, path, head)
        return head.judged[1]

    def decide(method: str, path: str, head: Head) -> Principal | Refusal:
        host = head.only(b"host")
        if host not in hosts and (host is None or host.lower() not in hosts):
            return Refusal(421, "wrong-host", f"this is 127.0.0.1:{port}; the Host header names another place")
        if b"origin" in head.names and any(origin.lower() not in origins for origin in head.all(b"origin")):
            return Refusal(403, "foreign-origin", "requests from web pages of another origin are refused")
        if method in _WITH_BODY:
            if refusal := _judge_content(path, head):
                return refusal
        elif (method, path) in OPEN:
            return ANYBODY
        if not require_token:
            return OWNER
        scheme, _, token = (head.only(b"authorization") or b"").partition(b" ")
        found = tokens.find(token.strip()) if scheme.lower() == b"bearer" else None
        if found is None:
            return _UNKNOWN
        return found if found.workspace is None or _is_for_workspaces(path) else _NOT_YOURS

    return judge


_UNKNOWN = Refusal(
    401,
    "unauthorized",
    "send `Authorization: Bearer <token>`; the owner's token is in the file that daemon.json calls token_file",
    ((b"www-authenticate", b'Bearer realm="rookery"'),),
)
_NOT_YOURS = Refusal(403, "forbidden", "the token of a workspace opens its own MCP endpoints and nothing else")


def _is_for_workspaces(path: str) -> bool:
    return path in _FOR_WORKSPACES or path.startswith(_BELOW_FOR_WORKSPACES)


def socket_judge(method: str, path: str, headers: Headers) -> Principal | Refusal:
    """The rules for the Unix socket: its mode and the peer's uid have authenticated the owner already."""
    if method in _WITH_BODY and (refusal := _judge_content(path, Head.of(headers))):
        return refusal
    return OWNER_LOCAL


def _judge_content(path: str, head: Head) -> Refusal | None:
    """A web page can send any text to us without asking; JSON it cannot."""
    if head.only(b"content-type") == b"application/json":
        return None
    kinds = head.all(b"content-type")
    kind = kinds[0].partition(b";")[0].strip().lower() if len(kinds) == 1 else b""
    if kind == b"application/json" or (kind == b"text/plain" and path == _TAKES_TEXT):
        return None
    if not kinds and not _has_body(head):
        return None
    return Refusal(415, "not-json", "send JSON, with `Content-Type: application/json`")


def _has_body(head: Head) -> bool:
    return bool(head.all(b"transfer-encoding")) or any(length != b"0" for length in head.all(b"content-length"))
