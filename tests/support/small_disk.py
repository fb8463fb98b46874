"""A real full disk: a small tmpfs in a separate mount namespace."""

import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

SECONDS = 60


@dataclass(frozen=True)
class SmallDisk:
    """Only a program whose command begins with `words` sees the disk, at `folder`."""

    folder: Path
    words: tuple[str, ...]

    def run(self, code: str, *words: str, before: tuple[str, ...] = ()) -> list[str]:
        """Run Python code with the disk as `disk`, and return the lines that it printed.

        `words` are its arguments, `before` is put in front of its command.
        """
        head = f"from pathlib import Path\ndisk = Path({str(self.folder)!r})\n"
        done = subprocess.run(
            [*self.words, *before, sys.executable, "-c", head + textwrap.dedent(code), *words],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


def make_small_disk(folder: Path, megabytes: int = 2) -> SmallDisk:
    """Create the disk, or skip the test if the machine allows no mount namespaces."""
    folder.mkdir()
    options = f"size={megabytes}m,mode=700"
    mount = ("sh", "-c", f'mount -t tmpfs -o {options} tmpfs "$0" && exec "$@"', str(folder))
    reasons: list[str] = []
    for space in (("unshare", "--mount"), ("unshare", "--user", "--map-root-user", "--mount")):
        try:
            tried = subprocess.run(
                [*space, *mount, "true"], capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except FileNotFoundError as error:
            pytest.skip(f"no mount namespaces here: {error}")
        if tried.returncode == 0:
            return SmallDisk(folder, (*space, *mount))
        reasons.append(tried.stderr.strip())
    pytest.skip(f"cannot mount a small disk: {'; '.join(reasons)}")
