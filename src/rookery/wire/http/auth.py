"""Authentication and authorization of a request by its head: Host, Origin, content type and token.

The decisions are pure functions over headers. Only a token authorizes; every other header only selects. For calls over
the Unix socket, a context variable holds the process of the peer.
"""

import hashlib
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.wire.http.head import STATUS_LINES, Headers, RequestHead

# The only routes that need no token: they reveal no more than that the daemon runs.
PUBLIC_ROUTES = frozenset({("GET", "/api/health"), ("HEAD", "/api/health")})
# The MCP endpoints. The endpoints themselves decide which workspace a request means, and whether it may use it.
_ENDPOINTS = frozenset({"/mcp", "/sse", "/messages", "/ws"})
_WORKSPACE_PREFIX = "/w/"
_SOCKET_IO_PATH = "/socket.io/"
# Values of Sec-Fetch-Site, which only browsers send, that rule out a request from another site.
_SAME_SITE_VALUES = frozenset({b"same-origin", b"none"})
_BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
# Long polling of Socket.IO posts text. Such a request is useless without an id that a web page cannot read.
_TEXT_BODY_PATH = _SOCKET_IO_PATH


@dataclass(frozen=True)
class Principal:
    """Who a request comes from: the owner (over the socket or by token), a workspace, or a client without rights.

    `loopback` is a client without a token where the setting `auth` allows that; it has to name a workspace. `anybody`
    may use the public routes alone. `workspace` is the worktree's own git folder, which stays the same when the
    worktree is moved.
    """

    kind: Literal["owner", "workspace", "loopback", "anybody"]
    local: bool = False
    workspace: Path | None = None

    @property
    def name(self) -> str:
        """The name that identifies this principal."""
        return self.kind if self.workspace is None else f"{self.kind} {self.workspace}"


@dataclass(frozen=True)
class PeerProcess:
    """The process that opened a connection to the Unix socket: `state["peer"]` of its requests."""

    pid: int
    started: float


@dataclass(frozen=True)
class Refusal:
    """An error response that ends the request. The connection is closed after it."""

    status: int
    code: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    remedy: str = ""

    @property
    def body(self) -> bytes:
        remedy = {"remedy": self.remedy} if self.remedy else {}
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message} | remedy})

    def encode(self) -> bytes:
        """Return the whole HTTP response as bytes."""
        body = self.body
        lines = [b"%b: %b\r\n" % header for header in self.headers]
        lines.append(b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body))
        return b"".join((STATUS_LINES[self.status], *lines, b"connection: close\r\n\r\n", body))


OWNER = Principal("owner")
OWNER_LOCAL = Principal("owner", local=True)
LOOPBACK = Principal("loopback")
ANYBODY = Principal("anybody")

Authenticate = Callable[[str, str, Headers], Principal | Refusal]


class Tokens:
    """Tokens by their hash, so that the time of a look-up does not depend on the token that was sent."""

    def __init__(self) -> None:
        self._principals: dict[bytes, Principal] = {}
        # Replaced whenever the tokens change, which invalidates cached decisions.
        self.version = object()

    def add(self, token: str, principal: Principal) -> None:
        self._principals[hashlib.sha256(token.encode()).digest()] = principal
        self.version = object()

    def remove(self, token: str) -> None:
        self._principals.pop(hashlib.sha256(token.encode()).digest(), None)
        self.version = object()

    def find(self, token: bytes) -> Principal | None:
        return self._principals.get(hashlib.sha256(token).digest())


def make_tcp_authenticator(port: int, tokens: Tokens, *, tokenless: Principal | None = None) -> Authenticate:
    """Return the authentication of requests to a TCP port on 127.0.0.1.

    `tokenless` is the principal of requests without a token. None means that such requests are refused.
    """
    hosts = frozenset({b"127.0.0.1:%d" % port, b"localhost:%d" % port})
    origins = frozenset(b"http://" + host for host in hosts)

    def authenticate(method: str, path: str, headers: Headers) -> Principal | Refusal:
        head = RequestHead.from_headers(headers)
        # The decision for a repeated head is cached until the tokens change.
        if head.auth_result is None or head.auth_result[0] is not tokens.version:
            head.auth_result = tokens.version, decide(method, path, head)
        return head.auth_result[1]

    def decide(method: str, path: str, head: RequestHead) -> Principal | Refusal:
        host = head.only(b"host")
        if host not in hosts and (host is None or host.lower() not in hosts):
            return Refusal(421, "wrong-host", f"the Host header must be 127.0.0.1:{port} or localhost:{port}")
        if b"origin" in head.names and any(origin.lower() not in origins for origin in head.all(b"origin")):
            return _FOREIGN_ORIGIN
        # The GET of a web page may have no Origin header. Then this header reveals a request from another site.
        if b"sec-fetch-site" in head.names and not _SAME_SITE_VALUES.issuperset(head.all(b"sec-fetch-site")):
            return _FOREIGN_ORIGIN
        if method in _BODY_METHODS:
            if refusal := _check_content_type(path, head):
                return refusal
        elif (method, path) in PUBLIC_ROUTES:
            return ANYBODY
        if tokenless is not None and b"authorization" not in head.names:
            return tokenless if can_access_path(tokenless, path) else _UNAUTHORIZED
        scheme, _, token = (head.only(b"authorization") or b"").partition(b" ")
        principal = tokens.find(token.strip()) if scheme.lower() == b"bearer" else None
        if principal is None:
            return _UNAUTHORIZED
        return principal if can_access_path(principal, path) else _FORBIDDEN

    return authenticate


_FOREIGN_ORIGIN = Refusal(403, "foreign-origin", "requests from web pages of another origin are refused")

_UNAUTHORIZED = Refusal(
    401,
    "unauthorized",
    "send `Authorization: Bearer <token>`; token_file in daemon.json is the path of the owner's token",
    ((b"www-authenticate", b'Bearer realm="rookery"'),),
)
_FORBIDDEN = Refusal(403, "forbidden", "the token of a workspace gives access only to its own MCP endpoints")


def can_access_path(principal: Principal, path: str) -> bool:
    """Return whether a principal may access a path, over any connection."""
    if principal.kind == "owner":
        return True
    if principal.kind == "anybody":
        return False
    if path in _ENDPOINTS or path.startswith(_WORKSPACE_PREFIX):
        return True
    return principal.kind == "workspace" and path.startswith(_SOCKET_IO_PATH)


def make_socket_authenticator(principal: Principal = OWNER_LOCAL, refusal: Refusal = _FORBIDDEN) -> Authenticate:
    """Return the authentication of one connection of the Unix socket.

    The mode of the socket and the uid of the peer have authenticated the user. `principal` is the identity of the peer
    process, and `refusal` the response where its rights are not enough.
    """

    def authenticate(method: str, path: str, headers: Headers) -> Principal | Refusal:
        if method in _BODY_METHODS and (malformed := _check_content_type(path, RequestHead.from_headers(headers))):
            return malformed
        if can_access_path(principal, path):
            return principal
        return ANYBODY if (method, path) in PUBLIC_ROUTES else refusal

    return authenticate


def make_owner_authenticator(tokens: Tokens) -> Authenticate:
    """Return the authentication of a connection of the Unix socket whose peer has to send the owner's token.

    A confined program cannot read that token, whatever else it finds a way to.
    """

    def authenticate(method: str, path: str, headers: Headers) -> Principal | Refusal:
        head = RequestHead.from_headers(headers)
        if method in _BODY_METHODS and (malformed := _check_content_type(path, head)):
            return malformed
        scheme, _, token = (head.only(b"authorization") or b"").partition(b" ")
        principal = tokens.find(token.strip()) if scheme.lower() == b"bearer" else None
        if principal is not None and principal.kind == "owner":
            return OWNER_LOCAL
        return ANYBODY if (method, path) in PUBLIC_ROUTES else _UNAUTHORIZED

    return authenticate


def _check_content_type(path: str, head: RequestHead) -> Refusal | None:
    """Refuse a body that is not JSON: a web page can send any text without a preflight request, but not JSON."""
    if head.only(b"content-type") == b"application/json":
        return None
    types = head.all(b"content-type")
    media_type = types[0].partition(b";")[0].strip().lower() if len(types) == 1 else b""
    if media_type == b"application/json" or (media_type == b"text/plain" and path == _TEXT_BODY_PATH):
        return None
    if not types and not _has_body(head):
        return None
    return Refusal(415, "not-json", "send JSON, with `Content-Type: application/json`")


def _has_body(head: RequestHead) -> bool:
    return bool(head.all(b"transfer-encoding")) or any(length != b"0" for length in head.all(b"content-length"))


# Whether the current request came over the Unix socket, and its process, if the system reports it.
_caller: ContextVar[tuple[bool, PeerProcess | None]] = ContextVar("peer", default=(False, None))


def is_socket_call() -> bool:
    """Return whether the current request came over the Unix socket."""
    return _caller.get()[0]


def get_calling_process() -> PeerProcess | None:
    """Return the process that sent the current request over the Unix socket, if it is known."""
    return _caller.get()[1]


def wrap_with_peer_context(app: ASGIApp) -> ASGIApp:
    """Return the app with the peer of each request in a context variable, as the Unix socket serves it."""

    async def serve_with_peer(scope: Scope, receive: Receive, send: Send) -> None:
        _caller.set((True, scope["state"].get("peer")))
        await app(scope, receive, send)

    return serve_with_peer
