"""Packages from PyPI, pinned, each set in a folder of its own in the virtual environment, fetched once."""

import fcntl
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_SECONDS = 300


def fetched(name: str, packages: Sequence[str]) -> Path:
    """Return the folder `name` with these packages, to be put on PYTHONPATH."""
    wanted = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:12]
    folder = Path(sys.prefix) / "pypi" / f"{name}-{wanted}"
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mark = folder / ".installed"
        if not mark.exists():
            uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--target", str(folder)]
            subprocess.run([*uv, "--python", sys.executable, *packages], check=True, timeout=_SECONDS)
            mark.touch()
    return folder
