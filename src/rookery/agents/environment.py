"""The environment of an agent: the user's, and what wires it to Rookery."""

import json
import os
import pwd
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from rookery.system import environment
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.processes import MARKER
from rookery.system.spawn import Spawner

# Loaded by OpenCode's runtime before OpenCode itself. A variable of OpenCode's own would not keep all of it off.
GUARD = Path(__file__).parent / "plugin" / "guard.js"
GUARD_VARIABLE = "BUN_INSPECT_PRELOAD"

EnvFrom = Literal["daemon", "login-shell"]

# OpenCode's default; said all the same, since the user may have another one for servers of their own.
USERNAME = "opencode"
# With a plugin, OpenCode waits for an npm install before it answers; offline that took more than a minute.
_FEW_RETRIES = ("npm_config_fetch_retries", "0")
# Of the session, shell or OpenCode that the daemon was started from, and true of nothing else.
_NOT_INHERITED = frozenset(
    {MARKER, "PWD", "OLDPWD", "SHLVL", "_", "OPENCODE", "OPENCODE_PID", "OPENCODE_SERVER_PASSWORD", "ROOKERY_TOKEN"}
)
_WIRED = frozenset(
    {f"{house}_{what}" for house in ("ROOKERY", "CODEHYDRA") for what in ("MCP_PORT", "WORKSPACE_PATH")}
    | {f"OPENCODE_{what}" for what in ("CONFIG", "CONFIG_CONTENT", "DISABLE_AUTOUPDATE", "DISABLE_PROJECT_CONFIG")}
    | {"ROOKERY_WORKSPACE_HEADER", "OPENCODE_SERVER_USERNAME", GUARD_VARIABLE}
)
_LOGIN_SECONDS = 20.0
_TELL = "import json, os, sys; sys.stdout.write(sys.argv[1] + json.dumps(dict(os.environ)))"


class Wiring(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is wired with. Without a `port` there is no gateway, and no `config` of ours either."""

    workspace: Path
    token: str
    password: str
    port: int | None
    config: Path | None
    content: str
    ripgrep: Path | None = None
    # Whether the repository's own OpenCode config may take effect.
    project_config: bool = False


def agent_environment(user: Mapping[str, str], wiring: Wiring) -> dict[str, str]:
    found = without_wiring(user)
    path = str(wiring.workspace)
    found |= {
        "ROOKERY_WORKSPACE_PATH": path,
        "ROOKERY_WORKSPACE_HEADER": header_of(path),
        "ROOKERY_TOKEN": wiring.token,
        "CODEHYDRA_WORKSPACE_PATH": path,
        "OPENCODE_SERVER_USERNAME": USERNAME,
        "OPENCODE_SERVER_PASSWORD": wiring.password,
        "OPENCODE_CONFIG_CONTENT": wiring.content,
        # The version is pinned, and an update would replace the program of every agent.
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    found |= dict.fromkeys(forgotten(user), _FEW_RETRIES[1])
    for name in ("ROOKERY_MCP_PORT", "CODEHYDRA_MCP_PORT"):
        found.pop(name, None)
        if wiring.port is not None:
            found[name] = str(wiring.port)
    if wiring.port is not None and wiring.config is not None:
        found["OPENCODE_CONFIG"] = str(wiring.config)
    if wiring.ripgrep is not None:
        found["PATH"] = os.pathsep.join(part for part in (found.get("PATH"), str(wiring.ripgrep.parent)) if part)
    if not wiring.project_config:
        found |= {"OPENCODE_DISABLE_PROJECT_CONFIG": "1", GUARD_VARIABLE: str(GUARD)}
    return found


def forgotten(user: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that are set for OpenCode's own start; our plugin takes them away before any tool runs."""
    return () if _FEW_RETRIES[0] in user else (_FEW_RETRIES[0],)


def warnings(user: Mapping[str, str], wiring: Wiring) -> list[str]:
    """What does not work in this agent, in words for the log and for people."""
    found: list[str] = []
    if wiring.port is None:
        found.append("there is no gateway port, so the agent starts without Rookery's MCP entry")
    if without_plugins(user):
        found.append(
            "OPENCODE_PURE is set: without Rookery's plugin, tool shells see the agent's password, and no tool can be "
            "run by its name"
        )
    return found


def without_plugins(user: Mapping[str, str]) -> bool:
    return user.get("OPENCODE_PURE", "").lower() in ("1", "true")


def header_of(path: str) -> str:
    """The path as an HTTP header: as it is where that can be, percent-encoded where a character does not fit.

    OpenCode puts it into JSON text unescaped, so quotes and backslashes do not fit either.
    """
    if path.isascii() and path.isprintable() and not set(path) & {'"', "\\"}:
        return path
    return quote(path.encode("utf-8", "surrogateescape"), safe="/ !#$&'()*+,:;=?@[]-._~")


def data_file(found: Mapping[str, str]) -> Path:
    """Where OpenCode keeps its sessions, by its environment."""
    data = Path(found.get("XDG_DATA_HOME") or Path(found.get("HOME") or Path.home()) / ".local" / "share") / "opencode"
    named = found.get("OPENCODE_DB")
    return data / named if named else data / "opencode.db"


async def user_environment(kind: EnvFrom, spawner: Spawner) -> dict[str, str]:
    """The environment that agents start from, by the setting `agents.env_from`."""
    return without_wiring(os.environ) if kind == "daemon" else await login_environment(spawner)


def without_wiring(found: Mapping[str, str]) -> dict[str, str]:
    """An environment as it was before an agent was wired: a daemon may be started from an agent's own shell."""
    wired = _WIRED if "ROOKERY_WORKSPACE_PATH" in found else frozenset[str]()
    return {name: value for name, value in found.items() if name not in _NOT_INHERITED | wired}


async def login_environment(spawner: Spawner, shell: Path | None = None) -> dict[str, str]:
    """What the user's login shell sets. Whatever its start-up files print, run or break is kept out of the answer."""
    shell = shell or Path(os.environ.get("SHELL") or pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh")
    mark = new_id()
    command = f"exec {shlex.join([sys.executable, '-I', '-c', _TELL, mark])}"
    remedy = 'mend its start-up files, or set agents.env_from = "daemon"'
    try:
        done = await spawner.run(
            [str(shell), "-l", "-c", command],
            name="login shell",
            cwd=Path.home(),
            env=environment.allowed(),
            timeout=_LOGIN_SECONDS,
        )
    except RookeryError as error:
        raise RookeryError("agent-unavailable", f"the login shell {shell}: {error.message}", remedy) from error
    _, there, told = done.stdout.decode("utf-8", "surrogateescape").partition(mark)
    if not there or done.cut:
        told = done.stderr.decode("utf-8", "replace").strip()[-400:] or f"it ended with {done.returncode}"
        raise RookeryError("agent-unavailable", f"the login shell {shell} told no environment: {told}", remedy)
    return without_wiring(json.loads(told))
