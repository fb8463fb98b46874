"""Packages from npm, pinned, fetched into the virtual environment once, also with concurrent requests."""

import fcntl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.suite import NODE, with_node

SECONDS = 300


def folder_of(name: str) -> Path:
    """Return the folder of a package. Each has its own, because npm removes packages that it was not asked for."""
    return Path(sys.prefix) / name


def fetched(name: str, packages: Mapping[str, str]) -> Path:
    """Return the `node_modules` of the folder `name`, which contains these versions."""
    folder = folder_of(name)
    modules = folder / "node_modules"
    marks = [modules / package / f".installed-{version}" for package, version in packages.items()]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(mark.exists() for mark in marks):
            npm = [str(NODE / "bin" / "node"), str(NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
            quiet = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
            wanted = [f"{package}@{version}" for package, version in packages.items()]
            command = [*npm, "install", *quiet, "--prefix", str(folder), *wanted]
            subprocess.run(command, check=True, timeout=SECONDS, env=with_node())
            for mark in marks:
                mark.touch()
    return modules
