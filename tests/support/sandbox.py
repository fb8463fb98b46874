"""A workspace full of traps, and what lies around it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

SECRET = b"from outside"
SECRET_NAME = "outside-name"


@dataclass(frozen=True)
class Tree:
    """`root` is a checkout, `outside` a folder beside it that nobody may see."""

    root: Path
    outside: Path

    def write(self, name: str, data: bytes = b"inside\n") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def link(self, name: str, target: str | Path) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).symlink_to(target)


def make_tree(folder: Path) -> Tree:
    root, outside = folder / "proj", folder / "proj-evil"
    subprocess.run(["git", "init", "-q", str(root)], check=True, timeout=30)
    (outside / SECRET_NAME).mkdir(parents=True)
    (outside / "secret").write_bytes(SECRET)
    return Tree(root, outside)


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))
