"""`python -m tests.servers [NAME ...]`: compare real servers, directly and through the gateway, and print a table.

The servers are listed in servers.toml. They are installed on first use, into the virtual environment.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path


def make_repository(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)


def main(names: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="rookery-servers-") as folder:
        home = Path(folder).resolve()
        # No server may find the settings of the person who runs this, or change anything of theirs.
        for name in [name for name in os.environ if name.startswith(("XDG_", "ROOKERY_"))]:
            del os.environ[name]
        os.environ.update(HOME=str(home), ROOKERY_HOME=str(home / "state"))
        make_repository(home / "files", {"todo.txt": "Water the plants.\n"})
        from tests.servers.compare import compare_servers

        return asyncio.run(compare_servers(home, names))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
