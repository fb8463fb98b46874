"""Checks of agents: OpenCode, the programs that it needs, and whether a model can be used."""

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from rookery.agents.opencode import install
from rookery.agents.opencode.environment import EnvironmentSource, find_logins, load_user_environment
from rookery.agents.opencode.install import Installer, VersionCache, scratch_folder
from rookery.agents.opencode.release import ON_PATH, PINNED_VERSION, require_supported
from rookery.daemon.doctor.programs import NO_NODE_CACHE, Check, ProgramChecks
from rookery.daemon.services.agents import read_jsonc
from rookery.system.errors import RookeryError

_INSTALL = "rookery agent install"
_LOGIN = "rookery agent login"
_PING_SECONDS = 20.0


class AgentChecks:
    """Checks of OpenCode, npm, ripgrep and models. `environment` is the environment of agents."""

    def __init__(self, programs: ProgramChecks, state: Path, version: str, environment: Mapping[str, str]) -> None:
        self._programs = programs
        self._state = state
        self._version = version
        self._environment = environment
        self._path = environment.get("PATH", "")

    async def run(self) -> list[Check]:
        opencode, ripgrep = await (
            self._check_programs_on_path() if self._version == ON_PATH else self._check_pinned_version()
        )
        needs_install = self._version != ON_PATH and opencode.status == "warning"
        return [await self._npm(needs_install), opencode, ripgrep, self._models()]

    async def _check_pinned_version(self) -> tuple[Check, Check]:
        try:
            installation = await Installer(self._state, self._programs.spawner, self._environment).find(self._version)
        except RookeryError as error:
            problem = Check("opencode", "failed", error.message, error.remedy)
            return problem, Check("ripgrep", "warning", "it is installed with OpenCode", error.remedy)
        if installation is None:
            problem = f"OpenCode {self._version} is not installed yet; starting the first agent installs it"
            return Check("opencode", "warning", problem, _INSTALL), Check(
                "ripgrep", "warning", "it is installed with OpenCode", _INSTALL
            )
        opencode = Check("opencode", "ok", f"{installation.version} at {installation.opencode}")
        return opencode, Check("ripgrep", "ok", str(installation.ripgrep))

    async def _check_programs_on_path(self) -> tuple[Check, Check]:
        return await asyncio.gather(self._check_opencode_on_path(), self._check_ripgrep_on_path())

    async def _check_opencode_on_path(self) -> Check:
        remedy = f"install it, or use the pinned version: rookery config set agents.version {PINNED_VERSION}"
        path = shutil.which("opencode", path=self._path)
        if path is None:
            return Check("opencode", "warning", "there is no opencode on PATH, but agents.version requires it", remedy)
        try:
            version = await VersionCache(self._state, self._programs.spawner, self._environment).run_version(Path(path))
            require_supported(version)
        except RookeryError as error:
            return Check("opencode", "failed", error.message, error.remedy)
        return Check("opencode", "ok", f"{version} at {path}")

    async def _check_ripgrep_on_path(self) -> Check:
        return await self._programs.tool("ripgrep", "rg", needed_for="searching in agents", remedy="install ripgrep")

    async def _npm(self, needs_install: bool) -> Check:
        """Check npm.

        With `needs_install`, OpenCode is still to be installed with it, so the registry is checked too.
        """
        try:
            command = install.find_npm(self._path)
        except RookeryError as error:
            return Check("npm", "warning", "npm was not found" if not needs_install else error.message, error.remedy)
        line, numbers = await self._programs.read_version(command)
        if not numbers:
            return Check("npm", "warning", f"cannot read the version of npm: {line}", "install Node.js 22 or later")
        remedy = "check the network and `npm config get registry`"
        try:
            why = await self._find_registry_error(command) if needs_install else ""
        except RookeryError as error:
            return Check("npm", "warning", f"npm {line}, but {error.message}", error.remedy or remedy)
        if why:
            return Check("npm", "warning", f"npm {line}, but its registry cannot be reached ({why})", remedy)
        return Check("npm", "ok", f"npm {line}")

    async def _find_registry_error(self, command: list[str]) -> str:
        """Return why the npm registry cannot be reached; an empty string if it can."""
        with scratch_folder(self._environment) as folder:
            result = await self._programs.spawner.run(
                install.npm_ping_command(command, folder),
                name="npm",
                cwd=folder,
                env={**self._environment, **NO_NODE_CACHE},
                timeout=_PING_SECONDS,
            )
        return install.find_npm_network_error(result.stderr.decode("utf-8", "replace"))

    def _models(self) -> Check:
        logins = find_logins(self._environment, read_jsonc)
        if not logins:
            summary = "no model provider is signed in, so agents can only use the free models of OpenCode"
            return Check("models", "warning", summary, _LOGIN)
        return Check("models", "ok", ", ".join(f"{login.provider} ({login.by})" for login in logins))


async def agent_checks(programs: ProgramChecks, state: Path, version: str, env_from: EnvironmentSource) -> list[Check]:
    """Return one check each; one more if the environment of agents cannot be loaded."""
    try:
        environment = await load_user_environment(env_from, programs.spawner)
    except RookeryError as error:
        failure = Check("environment", "failed", error.message, error.remedy)
        return [failure, *await AgentChecks(programs, state, version, os.environ).run()]
    return await AgentChecks(programs, state, version, environment).run()
