"""A machine without a terminal, such as a CI runner, with a clone of a project."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.cli.user import user


class Machine:
    """A machine of its own: a home, a state folder and a clone of the project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"HOME": str(folder / "home"), "ROOKERY_HOME": str(folder / "state")}
        self.checkout = folder / "deep" / "er" / "checkout"
        for made in (folder / "home", self.checkout.parent):
            made.mkdir(parents=True)

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command without any terminal, as nobody whom Rookery started."""
        return user(*words, env=self.env | dict(env or {}), cwd=self.checkout)

    def guarded(self) -> dict[str, list[dict[str, Any]]]:
        return json.loads(self.run("guard", "list", "--json").stdout)

    def file(self, text: str, name: str = "approvals") -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path
