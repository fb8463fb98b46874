"""The command line as its user runs it: not from anything that Rookery started, in a session of its own."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from rookery.system.process.table import MARKER
from tests.support.daemon.process import ROOKERY, SECONDS


def user_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != MARKER} | dict(env or {})


def user(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `given` is what it reads."""
    return subprocess.run(
        [ROOKERY, *words],
        env=user_environment(env),
        cwd=cwd or os.environ["HOME"],
        input=given,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
