"""Supported versions of OpenCode, and the npm packages that contain them.

This module imports nothing from its own package, since the settings read the pinned version from here.
"""

import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rookery.system.errors import RookeryError

# The version that Rookery was built and tested with. A setting pins another one, or is ON_PATH.
PINNED_VERSION = "1.18.33"
ON_PATH = "path"
# From the first version on, and below the second: OpenCode changes much between versions with similar numbers.
OLDEST_VERSION = (1, 18, 18)
BELOW_VERSION = (1, 19)
SUPPORTED = f"{'.'.join(map(str, OLDEST_VERSION))} or later, below {'.'.join(map(str, BELOW_VERSION))}"
RIPGREP_PACKAGE_VERSION = "1.18.0"

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:[-+][0-9A-Za-z.+-]+)?")
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_SYSTEMS = {"linux": "linux", "darwin": "darwin"}


class Machine(msgspec.Struct, frozen=True):
    """Properties that decide which build runs. Without AVX2 a processor is not `modern`, and needs a baseline build."""

    system: str
    processor: str
    musl: bool = False
    modern: bool = True


class Release(msgspec.Struct, frozen=True):
    """The npm packages of one OpenCode version for one machine, and the paths of their programs."""

    version: str
    opencode_package: str
    ripgrep_package: str

    @property
    def packages(self) -> Mapping[str, str]:
        """The versions by package."""
        return {self.opencode_package: self.version, self.ripgrep_package: RIPGREP_PACKAGE_VERSION}

    @property
    def folder(self) -> str:
        return f"{self.opencode_package}-{self.version}"

    def opencode(self, root: Path) -> Path:
        return root / "node_modules" / self.opencode_package / "bin" / "opencode"

    def ripgrep(self, root: Path) -> Path:
        return root / "node_modules" / self.ripgrep_package / "bin" / "rg"


def detect_machine() -> Machine:
    system = _SYSTEMS.get(sys.platform, sys.platform)
    processor = _MACHINES.get(platform.machine().lower(), platform.machine())
    linux = system == "linux"
    return Machine(system, processor, linux and any(Path("/lib").glob("ld-musl-*")), not linux or _has_avx2())


def find_release(version: str, machine: Machine) -> Release:
    """Return the packages of `version` for this machine; raise RookeryError if there cannot be any."""
    require_supported(version)
    if machine.system not in _SYSTEMS.values() or machine.processor not in _MACHINES.values():
        raise RookeryError(
            "agent-unavailable",
            f"there is no OpenCode package for {machine.system} on {machine.processor}",
            f'install OpenCode yourself and set agents.version = "{ON_PATH}"',
        )
    name = f"{machine.system}-{machine.processor}"
    plain = "-baseline" if machine.processor == "x64" and not machine.modern else ""
    return Release(version, f"opencode-{name}{plain}{'-musl' * machine.musl}", f"@vscode/ripgrep-{name}")


def is_version(text: str) -> bool:
    """Return whether the text is a version and nothing else, unlike OpenCode's output when it fails."""
    return _VERSION.fullmatch(text) is not None


def require_supported(version: str) -> None:
    """Raise RookeryError with the supported versions if this one is not supported."""
    match = _VERSION.fullmatch(version)
    if match is None:
        raise RookeryError(
            "agent-unavailable",
            f"{version[:80]!r} is not a version of OpenCode",
            f'set agents.version to {SUPPORTED}, or to "{ON_PATH}"',
        )
    numbers: tuple[Any, ...] = tuple(int(part) for part in match.groups())
    if not OLDEST_VERSION <= numbers < BELOW_VERSION:
        raise RookeryError(
            "agent-unavailable",
            f"OpenCode {version} is not supported: Rookery works with {SUPPORTED}",
            f'set agents.version = "{PINNED_VERSION}" and run `rookery agent install`',
        )


def _has_avx2() -> bool:
    try:
        return "avx2" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
