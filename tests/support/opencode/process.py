"""The real OpenCode, pinned, with the ripgrep that it needs: fetched once, and run offline in its own home."""

import asyncio
import os
import platform
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.system.ids import new_id
from rookery.system.process.child import Child, TailBuffer
from rookery.system.process.spawn import Spawner
from tests.support.npm.packages import fetched
from tests.support.opencode.api import OpenCodeApi
from tests.support.opencode.home import OPENCODE_VERSION, OpenCodeHome

RIPGREP_VERSION = "1.18.0"
# A start takes 2 seconds on a quiet machine.
START_SECONDS = 90

_LISTENING = re.compile(rb"listening on (http://127\.0\.0\.1:\d+)")


@dataclass(frozen=True)
class Installed:
    opencode: Path
    ripgrep: Path

    @property
    def search_path(self) -> str:
        """Return a PATH with both programs and git."""
        return os.pathsep.join([str(self.opencode.parent), str(self.ripgrep.parent), os.environ["PATH"]])


def installed() -> Installed:
    machine = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    opencode = f"opencode-{sys.platform}-{machine}"
    ripgrep = f"@vscode/ripgrep-{sys.platform}-{machine}"
    modules = fetched("opencode", {opencode: OPENCODE_VERSION, ripgrep: RIPGREP_VERSION})
    return Installed(modules / opencode / "bin" / "opencode", modules / ripgrep / "bin" / "rg")


@dataclass(frozen=True)
class RunningOpenCode:
    """`opencode serve`; `api` sends requests for sessions in `directory`, `output` is its latest output."""

    url: str
    child: Child
    home: OpenCodeHome
    api: OpenCodeApi
    output: TailBuffer


@asynccontextmanager
async def start_opencode(
    directory: Path,
    config: Mapping[str, Any] | None = None,
    *,
    home: OpenCodeHome | None = None,
    env: Mapping[str, str] | None = None,
    spawner: Spawner | None = None,
) -> AsyncGenerator[RunningOpenCode]:
    """Run the real server in `directory`, with `config` as OPENCODE_CONFIG_CONTENT, until the end of the block.

    `env` is added to the offline environment. If `home` is given, a second server finds the sessions of the first.
    """
    home = home or OpenCodeHome.make(Path(os.environ["HOME"]) / f"opencode-{new_id()}")
    spawner = spawner or Spawner(new_id())
    here = await asyncio.to_thread(installed)
    given = {"PATH": here.search_path, **home.environment(config), **(env or {})}
    output = TailBuffer()
    argv = [str(here.opencode), "serve", "--hostname", "127.0.0.1", "--port", "0", "--print-logs"]
    # About one start of fifty ends at once, for no reason that it tells.
    for last_try in (False, True):
        child = await spawner.start(argv, name="opencode", cwd=directory, env=given, stdout="stream", stderr=output)
        try:
            url = await _listening(child, output)
            if url is None:
                assert not last_try, f"OpenCode ended before it listened:\n{output.text()}"
                continue
            async with OpenCodeApi(url, directory, given.get("OPENCODE_SERVER_PASSWORD")) as api:
                yield RunningOpenCode(url, child, home, api, output)
            return
        finally:
            await child.stop()


async def _listening(child: Child, output: TailBuffer) -> str | None:
    """Wait for the line with the address, as earlier requests are never answered. Return None if it ends."""
    assert child.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            while line := await child.stdout.readline():
                if found := _LISTENING.search(line):
                    return found[1].decode()
    except TimeoutError:
        raise AssertionError(f"OpenCode does not listen after {START_SECONDS} s:\n{output.text()}") from None
    return None
