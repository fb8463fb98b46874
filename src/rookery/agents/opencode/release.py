"""Which OpenCode: the version that is pinned, the versions that are supported, and the packages that hold them."""

import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rookery.system.errors import RookeryError

# What Rookery was built and tested with. A setting pins another one, or says ON_PATH.
PINNED = "1.18.33"
ON_PATH = "path"
# From the first on, and below the second: OpenCode changes much between versions that look alike.
OLDEST, BELOW = (1, 18, 18), (1, 19)
SUPPORTED = f"{'.'.join(map(str, OLDEST))} or later, below {'.'.join(map(str, BELOW))}"
RIPGREP = "1.18.0"

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:[-+][0-9A-Za-z.+-]+)?")
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_SYSTEMS = {"linux": "linux", "darwin": "darwin"}


class Machine(msgspec.Struct, frozen=True):
    """What decides which build runs here. `modern` is about the processor: without AVX2 a plainer build is needed."""

    system: str
    processor: str
    musl: bool = False
    modern: bool = True


class Release(msgspec.Struct, frozen=True):
    """The npm packages of one OpenCode for one machine, and where their programs lie once they are installed."""

    version: str
    opencode_package: str
    ripgrep_package: str

    @property
    def wanted(self) -> Mapping[str, str]:
        """The versions, by package."""
        return {self.opencode_package: self.version, self.ripgrep_package: RIPGREP}

    @property
    def folder(self) -> str:
        return f"{self.opencode_package}-{self.version}"

    def opencode(self, root: Path) -> Path:
        return root / "node_modules" / self.opencode_package / "bin" / "opencode"

    def ripgrep(self, root: Path) -> Path:
        return root / "node_modules" / self.ripgrep_package / "bin" / "rg"


def this_machine() -> Machine:
    system = _SYSTEMS.get(sys.platform, sys.platform)
    processor = _MACHINES.get(platform.machine().lower(), platform.machine())
    linux = system == "linux"
    return Machine(system, processor, linux and any(Path("/lib").glob("ld-musl-*")), not linux or _has_avx2())


def release_for(version: str, machine: Machine) -> Release:
    """The packages of `version` for this machine; an error if there cannot be any."""
    check_supported(version)
    if machine.system not in _SYSTEMS.values() or machine.processor not in _MACHINES.values():
        raise RookeryError(
            "agent-unavailable",
            f"there is no OpenCode package for {machine.system} on {machine.processor}",
            f'install OpenCode yourself and set agents.version = "{ON_PATH}"',
        )
    name = f"{machine.system}-{machine.processor}"
    plain = "-baseline" if machine.processor == "x64" and not machine.modern else ""
    return Release(version, f"opencode-{name}{plain}{'-musl' * machine.musl}", f"@vscode/ripgrep-{name}")


def check_supported(version: str) -> None:
    """Refuse a version that Rookery does not know how to drive, and say which ones it does."""
    found = _VERSION.fullmatch(version)
    if found is None:
        raise RookeryError(
            "agent-unavailable",
            f"{version[:80]!r} is no version of OpenCode",
            f'set agents.version to one that is {SUPPORTED}, or to "{ON_PATH}"',
        )
    numbers: tuple[Any, ...] = tuple(int(part) for part in found.groups())
    if not OLDEST <= numbers < BELOW:
        raise RookeryError(
            "agent-unavailable",
            f"OpenCode {version} is not supported: Rookery works with {SUPPORTED}",
            f'set agents.version = "{PINNED}" and run `rookery agent install`',
        )


def _has_avx2() -> bool:
    try:
        return "avx2" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
