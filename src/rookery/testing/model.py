"""The scripted model: an OpenAI-compatible server on 127.0.0.1 that plays a script instead of thinking."""

import hmac
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rookery.testing.loading import load_script, script_of
from rookery.testing.player import Player
from rookery.testing.request_log import Record, RequestLog
from rookery.testing.routes import Holds, routes
from rookery.testing.script import Script
from rookery.testing.serving import Admits, serve


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
    player, holds = Player(_script(script)), Holds()
    requests = RequestLog(log, tell=tell)
    try:
        served = await serve(routes(player, requests, holds), port=port, admits=_only(key))
        try:
            yield ScriptedModel(served.url, player, requests, holds)
        finally:
            await served.stop()
    finally:
        requests.close()


def _only(key: str | None) -> Admits | None:
    if key is None:
        return None
    wanted = key.encode()
    return lambda given: hmac.compare_digest(given, wanted)


def _script(given: Script | Mapping[str, Any] | Path) -> Script:
    if isinstance(given, Script):
        return given
    return load_script(given) if isinstance(given, Path) else script_of(given)
