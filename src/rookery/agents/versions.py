"""What an opencode says of its version, asked once for each file."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.files import write_atomic
from rookery.system.spawn import Spawner

# `opencode --version` takes 2 seconds on a quiet machine.
PROBE_SECONDS = 60.0
_MOST = 50


class Versions:
    """Remembers answers in `file`, for as long as a program has the same path, size and time of change."""

    def __init__(self, file: Path, spawner: Spawner, environment: Mapping[str, str]) -> None:
        self._file = file
        self._spawner = spawner
        self._environment = environment

    async def of(self, opencode: Path) -> str:
        found = opencode.stat()
        key = json.dumps([str(opencode), found.st_mtime_ns, found.st_size])
        known = self._known()
        if key not in known:
            known = dict([*known.items(), (key, await self.ask(opencode))][-_MOST:])
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(self._file, json.dumps(known).encode())
        return known[key]

    async def ask(self, opencode: Path, home: Path | None = None) -> str:
        """Run it; an error if it does not run here. It makes folders in its `home`, even to say no more than this."""
        env = dict(self._environment)
        if home is not None:
            env = {name: value for name, value in env.items() if not name.startswith("XDG_")} | {"HOME": str(home)}
        argv = [str(opencode), "--version"]
        done = await self._spawner.run(argv, name="opencode", cwd=Path("/"), env=env, timeout=PROBE_SECONDS)
        version = done.stdout.decode("utf-8", "replace").strip()
        if done.returncode == 0 and version:
            return version
        last = " ".join(done.stderr.decode("utf-8", "replace").strip().splitlines()[-3:])
        told = f"{opencode} does not run here: {last or f'it ended with {done.returncode}'}"
        raise RookeryError("agent-unavailable", told, "install another one")

    def _known(self) -> dict[str, str]:
        with contextlib.suppress(OSError, ValueError):
            found: Any = json.loads(self._file.read_bytes())
            return msgspec.convert(found, dict[str, str])
        return {}
