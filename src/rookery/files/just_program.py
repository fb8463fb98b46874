"""Where `just` is: the one that came with us, else the user's."""

import importlib.metadata
import shutil
from collections.abc import Mapping
from pathlib import Path

from rookery.system.errors import RookeryError


def find_just() -> Path:
    """The program of the package `rust-just`, of which the version is known; else the one on PATH."""
    try:
        files = importlib.metadata.files("rust-just") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    ours = [Path(str(file.locate())) for file in files if file.stem == "just" and file.suffix in ("", ".exe")]
    for place in ours:
        if place.is_file():
            return place.resolve()
    found = shutil.which("just")
    if found is None:
        raise RookeryError("spawn-failed", "the program just was not found", "pip install rust-just")
    return Path(found)


def with_just(env: Mapping[str, str], program: Path) -> dict[str, str]:
    """The environment of a recipe: no setting of just leaks in, and a recipe that calls just finds one."""
    found = {name: value for name, value in env.items() if not name.startswith("JUST_")}
    path = found.get("PATH", "")
    if shutil.which("just", path=path) is None:
        # Behind all others, since other programs lie beside it.
        found["PATH"] = f"{path}:{program.parent}" if path else str(program.parent)
    return found
