"""What the doctor finds out about agents: OpenCode, what it needs, and whether a model can be asked at all."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rookery.agents import npm
from rookery.agents.environment import EnvFrom, user_environment
from rookery.agents.install import Installer
from rookery.agents.logins import logins
from rookery.agents.release import ON_PATH, PINNED, check_supported
from rookery.daemon.agents import read_jsonc
from rookery.daemon.programs import Check, Programs
from rookery.system.errors import RookeryError

_INSTALL = "rookery agent install"
_LOGIN = "rookery agent login"
_PING_SECONDS = 20.0


class AgentChecks:
    """`environment` is the one that agents get."""

    def __init__(self, programs: Programs, state: Path, version: str, environment: Mapping[str, str]) -> None:
        self._programs, self._state = programs, state
        self._version, self._environment = version, environment
        self._path = environment.get("PATH", "")

    async def all(self) -> list[Check]:
        opencode, ripgrep = await (self._on_path() if self._version == ON_PATH else self._pinned())
        wanted = self._version != ON_PATH and opencode.status == "warning"
        return [await self._npm(wanted), opencode, ripgrep, self._models()]

    async def _pinned(self) -> tuple[Check, Check]:
        try:
            found = await Installer(self._state, self._programs.spawner, self._environment).find(self._version)
        except RookeryError as error:
            told = Check("opencode", "failed", error.message, error.remedy)
            return told, Check("ripgrep", "warning", "it comes with OpenCode", error.remedy)
        if found is None:
            told = f"OpenCode {self._version} is not installed yet; the first agent brings it"
            return Check("opencode", "warning", told, _INSTALL), Check("ripgrep", "warning", "it comes along", _INSTALL)
        opencode = Check("opencode", "ok", f"{found.version} at {found.opencode}")
        return opencode, Check("ripgrep", "ok", str(found.ripgrep))

    async def _on_path(self) -> tuple[Check, Check]:
        return await asyncio.gather(self._own_opencode(), self._own_ripgrep())

    async def _own_opencode(self) -> Check:
        remedy = f"install it, or bring one: rookery config set agents.version {PINNED}"
        path = shutil.which("opencode", path=self._path)
        if path is None:
            return Check("opencode", "warning", "there is no opencode on PATH, which agents.version asks for", remedy)
        line, numbers = await self._programs.said([path])
        try:
            check_supported(line)
        except RookeryError as error:
            return Check("opencode", "failed" if numbers else "warning", error.message, error.remedy)
        return Check("opencode", "ok", f"{line} at {path}")

    async def _own_ripgrep(self) -> Check:
        return await self._programs.tool("ripgrep", "rg", needed_for="searching in agents", remedy="install ripgrep")

    async def _npm(self, wanted: bool) -> Check:
        """`wanted`: OpenCode is still to be brought with it."""
        try:
            command = npm.find_npm(self._path)
        except RookeryError as error:
            return Check("npm", "warning", "npm was not found" if not wanted else error.message, error.remedy)
        line, numbers = await self._programs.said(command)
        if not numbers:
            return Check("npm", "warning", f"npm does not tell its version: {line}", "install Node.js 22 or later")
        why = await self._unreachable(command) if wanted else ""
        if why:
            told = f"npm {line}, but its registry cannot be reached ({why})"
            return Check("npm", "warning", told, "check the network and `npm config get registry`")
        return Check("npm", "ok", f"npm {line}")

    async def _unreachable(self, command: list[str]) -> str:
        with tempfile.TemporaryDirectory(prefix="rookery-npm-") as folder:
            try:
                done = await self._programs.spawner.run(
                    npm.ping_command(command, Path(folder)),
                    name="npm",
                    cwd=Path(folder),
                    env=self._environment,
                    timeout=_PING_SECONDS,
                )
            except RookeryError as error:
                return error.message
        return npm.unreachable(done.stderr.decode("utf-8", "replace"))

    def _models(self) -> Check:
        found = logins(self._environment, read_jsonc)
        if not found:
            told = "no model provider is signed in, so agents have at most what OpenCode offers for free"
            return Check("models", "warning", told, _LOGIN)
        return Check("models", "ok", ", ".join(f"{one.provider} ({one.by})" for one in found))


async def agent_checks(programs: Programs, state: Path, version: str, env_from: EnvFrom) -> list[Check]:
    """One row each; one more if the environment that agents are to have cannot be had."""
    try:
        environment = await user_environment(env_from, programs.spawner)
    except RookeryError as error:
        told = Check("environment", "failed", error.message, error.remedy)
        return [told, *await AgentChecks(programs, state, version, os.environ).all()]
    return await AgentChecks(programs, state, version, environment).all()
