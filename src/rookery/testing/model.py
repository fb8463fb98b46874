"""The scripted model: an OpenAI-compatible server on 127.0.0.1 that plays a script.

`opencode_config` returns the smallest OpenCode config that uses it and no other model.
"""

import hmac
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rookery.testing.load import load_script, parse_script
from rookery.testing.player import Player
from rookery.testing.request_log import LoggedRequest, RequestLog
from rookery.testing.routes import HeldReplies, TokenCheck, model_routes, serve_model
from rookery.testing.script import Script


class ScriptedModel:
    """A model that is served at `url`, the `baseURL` of OpenAI clients.

    `requests` are the requests that it has received.
    """

    def __init__(self, url: str, player: Player, requests: RequestLog, holds: HeldReplies) -> None:
        self.url = url
        self.requests = requests
        self._player = player
        self._holds = holds

    @property
    def script(self) -> Script:
        return self._player.script

    def play(self, script: Script | Mapping[str, Any] | Path) -> None:
        """Play another script from now on, also for sessions that have already started."""
        self._player.script = _to_script(script)

    def release(self, hold: str) -> None:
        """Release all steps with this `hold`, including later ones."""
        self._holds.release(hold)


@asynccontextmanager
async def scripted_model(
    script: Script | Mapping[str, Any] | Path,
    *,
    port: int = 0,
    key: str | None = None,
    log: Path | None = None,
    on_request: Callable[[LoggedRequest], None] | None = None,
) -> AsyncGenerator[ScriptedModel]:
    """Serve a script, or one from a file, until the end of the block.

    With a key, requests must carry it. `log` is a file to which requests are appended; `on_request` is called with
    each.
    """
    player = Player(_to_script(script))
    holds = HeldReplies()
    requests = RequestLog(log, on_request=on_request)
    try:
        served = await serve_model(model_routes(player, requests, holds), port=port, accepts_key=_make_key_check(key))
        try:
            yield ScriptedModel(served.url, player, requests, holds)
        finally:
            await served.stop()
    finally:
        requests.close()


def _make_key_check(key: str | None) -> TokenCheck | None:
    """Return a check for this key, or None if any key is accepted."""
    if key is None:
        return None
    expected = key.encode()
    return lambda token: hmac.compare_digest(token, expected)


def _to_script(source: Script | Mapping[str, Any] | Path) -> Script:
    """Return a script from a script, plain data or a file."""
    if isinstance(source, Script):
        return source
    return load_script(source) if isinstance(source, Path) else parse_script(source)


def opencode_config(url: str, key: str | None = None) -> dict[str, Any]:
    """Return a config for `opencode.json` or OPENCODE_CONFIG_CONTENT.

    `url` is the URL of the model, which ends in /v1.
    """
    model = {
        "name": "Scripted",
        "tool_call": True,
        "attachment": True,
        "modalities": {"input": ["text", "image"], "output": ["text"]},
        "limit": {"context": 200_000, "output": 8_000},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Scripted model",
        # Without a key OpenCode would look for one elsewhere.
        "options": {"baseURL": url, "apiKey": key or "none"},
        "models": {"scripted": model},
    }
    return {
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "enabled_providers": ["scripted"],
        "provider": {"scripted": provider},
    }
