"""The scripted model: an OpenAI-compatible server on 127.0.0.1 that plays a script instead of thinking."""

import hmac
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.system.errors import RookeryError
from rookery.testing.chunks import error_body
from rookery.testing.loading import load_script, script_of
from rookery.testing.player import Player
from rookery.testing.request_log import Record, RequestLog
from rookery.testing.routes import Holds, routes
from rookery.testing.script import Script
from rookery.wire.door import Limits
from rookery.wire.gate import Tokens, tcp_judge
from rookery.wire.listener import LOOPBACK, Listener, bind_port

_STOP_SECONDS = 0.2


class ScriptedModel:
    """A model that is being served at `url`, the `baseURL` of OpenAI clients; `requests` is what it was asked."""

    def __init__(self, url: str, player: Player, requests: RequestLog, holds: Holds) -> None:
        self.url = url
        self.requests = requests
        self._player = player
        self._holds = holds

    @property
    def script(self) -> Script:
        return self._player.script

    def play(self, script: Script | Mapping[str, Any] | Path) -> None:
        """Play another script from now on, for sessions that have begun too."""
        self._player.script = _script(script)

    def release(self, hold: str) -> None:
        """Let steps with this `hold` go on, those to come too."""
        self._holds.release(hold)


@asynccontextmanager
async def scripted_model(
    script: Script | Mapping[str, Any] | Path,
    *,
    port: int = 0,
    key: str | None = None,
    log: Path | None = None,
    tell: Callable[[Record], None] | None = None,
) -> AsyncGenerator[ScriptedModel]:
    """Serve a script, or one from a file, until the end of the block.

    With a key, requests must carry it. `log` is a file that requests are appended to, `tell` is called with each.
    """
    player = Player(_script(script))
    requests = RequestLog(log, tell=tell)
    try:
        sock = bind_port(port)
        if sock is None:
            raise RookeryError(
                "port-taken", f"port {port} of {LOOPBACK} is held by another program", "leave the port out to take any"
            )
        taken: int = sock.getsockname()[1]
        holds = Holds()
        app = _with_key(routes(player, requests, holds), key)
        listener = Listener(sock, app, tcp_judge(taken, Tokens(), require_token=False), Limits())
        await listener.start()
        try:
            yield ScriptedModel(f"http://{LOOPBACK}:{taken}/v1", player, requests, holds)
        finally:
            await listener.stop(_STOP_SECONDS)
    finally:
        requests.close()


def _script(given: Script | Mapping[str, Any] | Path) -> Script:
    if isinstance(given, Script):
        return given
    return load_script(given) if isinstance(given, Path) else script_of(given)


def _with_key(app: ASGIApp, key: str | None) -> ASGIApp:
    if key is None:
        return app
    wanted = f"Bearer {key}".encode()

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if hmac.compare_digest(given, wanted):
            await app(scope, receive, send)
            return
        body = error_body(401, "this model wants its key: send `Authorization: Bearer <key>`")
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return guarded
