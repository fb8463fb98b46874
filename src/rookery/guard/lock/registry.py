"""What npm and PyPI tell about packages, asked through npm, uv and pip as the user has configured them.

Rookery knows no address of a registry: each client uses the one that it is configured for. The clients run in an empty
folder, so that no file of a repository configures them, and they run no code of a package.
"""

import asyncio
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from rookery.guard.lock.file import LockedPackage
from rookery.guard.lock.packages import PackageRequest
from rookery.system.errors import RookeryError
from rookery.system.process.spawn import Spawner

_SECONDS = 120.0
_MAX_PARALLEL = 4
_NPM_VIEW = ("--json", "--no-update-notifier", "--loglevel=error", "--logs-max=0", "--fetch-retries=1")
_NPM_FIELDS = ("name", "version", "dist.integrity")
_UV_COMPILE = ("--no-deps", "--generate-hashes", "--no-header", "--no-annotate", "--no-build", "--quiet")
_PIP_REPORT = (
    *("--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:", "--no-input"),
    *("--disable-pip-version-check", "--quiet", "--report", "-"),
)
_UV_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?==(?P<version>[^\s;\\]+)", re.MULTILINE)
_UV_HASH = re.compile(r"--hash=(?P<hash>sha256:[0-9a-f]{64})")


class ResolvedPackage(msgspec.Struct, frozen=True):
    """The package that a request stands for now; `problem` says why it is not known."""

    request: PackageRequest
    package: LockedPackage | None
    problem: str = ""


class PackageRegistries:
    """Resolves packages with the clients on the PATH of `environment`. `find_npm` returns the command of npm."""

    def __init__(
        self, spawner: Spawner, environment: Mapping[str, str], find_npm: Callable[[str], Sequence[str]]
    ) -> None:
        self._spawner = spawner
        self._environment = environment
        self._find_npm = find_npm
        self._semaphore = asyncio.Semaphore(_MAX_PARALLEL)

    async def resolve(self, requests: Iterable[PackageRequest]) -> dict[PackageRequest, ResolvedPackage]:
        """Return what each request stands for. Never raises for a package that cannot be resolved."""
        unique = list(dict.fromkeys(requests))
        return dict(zip(unique, await asyncio.gather(*map(self._try_resolve, unique)), strict=True))

    async def _try_resolve(self, request: PackageRequest) -> ResolvedPackage:
        async with self._semaphore:
            try:
                ask = {"npm": self._ask_npm, "uv": self._ask_uv, "pip": self._ask_pip}[request.client]
                with tempfile.TemporaryDirectory(prefix="rookery-", ignore_cleanup_errors=True) as folder:
                    return ResolvedPackage(request, await ask(request, Path(folder)))
            except RookeryError as error:
                return ResolvedPackage(request, None, error.message)
            except (ValueError, KeyError, TypeError, msgspec.ValidationError):
                return ResolvedPackage(request, None, f"the answer on {request.text} cannot be read")

    @property
    def _search(self) -> str:
        return self._environment.get("PATH", "")

    def _npm_command(self) -> Sequence[str]:
        try:
            return self._find_npm(self._search)
        except RookeryError:
            raise RookeryError("upstream-failed", "npm was not found, so its registry cannot be asked") from None

    async def _ask_npm(self, request: PackageRequest, folder: Path) -> LockedPackage:
        fields = ("name", "version", "dist.integrity")
        output = await self._run("npm", [*self._npm_command(), "view", request.text, *fields, *_NPM_VIEW], folder)
        answer: Any = json.loads(output or "null")
        if isinstance(answer, list):
            # All versions of a range, the newest last.
            answer = cast(list[Any], answer)[-1] if answer else None
        if not answer:
            raise RookeryError("upstream-failed", f"npm knows no version of {request.text}")
        integrity = str(answer.get("dist.integrity") or "")
        return LockedPackage("npm", request.name, str(answer["version"]), tuple(sorted(integrity.split())))

    async def _ask_uv(self, request: PackageRequest, folder: Path) -> LockedPackage:
        (folder / "requirements.in").write_text(f"{request.text}\n", encoding="utf-8")
        argv = [self._find_program("uv"), "pip", "compile", "requirements.in", *_UV_COMPILE]
        return _read_uv_pin(request, (await self._run("uv", argv, folder)).decode())

    async def _ask_pip(self, request: PackageRequest, folder: Path) -> LockedPackage:
        argv = [self._find_program("pip3", "pip"), "install", *_PIP_REPORT, request.text]
        return _read_pip_report(request, json.loads(await self._run("pip", argv, folder)))

    def _find_program(self, *names: str) -> str:
        for name in names:
            if path := shutil.which(name, path=self._search):
                return path
        raise RookeryError("upstream-failed", f"{names[-1]} was not found, so PyPI cannot be asked")

    async def _run(self, name: str, argv: Sequence[str], folder: Path) -> bytes:
        """Return what a client prints. Its error is described without addresses, which may hold a password."""
        result = await self._spawner.run(argv, name=name, cwd=folder, env=self._environment, timeout=_SECONDS)
        if result.returncode == 0:
            return result.stdout
        lines = [line for line in result.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        reason = re.sub(r"\w+://\S+", "(address)", lines[0].strip() if lines else f"exit code {result.returncode}")
        raise RookeryError("upstream-failed", f"{name} failed: {reason[:200]}")


def _read_uv_pin(request: PackageRequest, text: str) -> LockedPackage:
    match = _UV_PIN.search(text)
    if match is None:
        raise RookeryError("upstream-failed", f"uv knows no version of {request.text}")
    return LockedPackage("pypi", request.name, match["version"], tuple(sorted(set(_UV_HASH.findall(text)))))


def _read_pip_report(request: PackageRequest, report: Mapping[str, Any]) -> LockedPackage:
    """Return the package of a report. A wheel for one platform has no integrity that is valid on others."""
    item = report["install"][0]
    download = item["download_info"]
    digest = download.get("archive_info", {}).get("hashes", {}).get("sha256")
    is_portable = str(download["url"]).partition("#")[0].endswith("-none-any.whl")
    integrity = (f"sha256:{digest}",) if digest and is_portable else ()
    return LockedPackage("pypi", request.name, str(item["metadata"]["version"]), integrity)
