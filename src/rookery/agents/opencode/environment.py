"""The environment variables of an agent, and the model providers that they make usable.

Logins are read from OpenCode's files and from the environment, without running OpenCode. So is whether OpenCode may
need packages from npm: it installs its own plugin package into every config folder, and with any plugin it answers no
request before that is done. On a slow network this takes a minute, and only the user's own plugins and tools import
the package.
"""

import contextlib
import json
import os
import pwd
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import quote

import msgspec

from rookery.agents.opencode.project_config import CONFIG_FILES, CONFIG_FOLDER, ParseJson
from rookery.system.causes import describe_end, find_cause
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_plain
from rookery.system.ids import new_id
from rookery.system.process import environment
from rookery.system.process.spawn import Spawner
from rookery.system.process.table import MARKER

# Loaded by OpenCode's runtime before OpenCode itself. OpenCode's own variable does not disable all of the config.
GUARD_FILE = Path(__file__).parent / "plugin" / "guard.js"
GUARD_VARIABLE = "BUN_INSPECT_PRELOAD"

EnvironmentSource = Literal["daemon", "login-shell"]

# OpenCode's default, set explicitly since the user may have another one for servers of their own.
USERNAME = "opencode"
# With a plugin, OpenCode waits for an npm install before it answers; offline that took more than a minute.
_NO_NPM_RETRIES = {"npm_config_fetch_retries": "0"}
# Set if nothing needs the packages that would be installed.
_NO_REGISTRY = {"npm_config_offline": "true"}
# Variables of the session, shell or OpenCode that the daemon was started from, which are valid only there.
_NOT_INHERITED = frozenset(
    {MARKER, "PWD", "OLDPWD", "SHLVL", "_", "OPENCODE", "OPENCODE_PID", "OPENCODE_SERVER_PASSWORD", "ROOKERY_TOKEN"}
    | {"ROOKERY_APPROVE", "ROOKERY_APPROVALS_FILE"}
)
_AGENT_VARIABLES = frozenset(
    {f"{prefix}_{suffix}" for prefix in ("ROOKERY", "CODEHYDRA") for suffix in ("MCP_PORT", "WORKSPACE_PATH")}
    | {f"OPENCODE_{suffix}" for suffix in ("CONFIG", "CONFIG_CONTENT", "DISABLE_AUTOUPDATE", "DISABLE_PROJECT_CONFIG")}
    | {"ROOKERY_WORKSPACE_HEADER", "OPENCODE_SERVER_USERNAME", GUARD_VARIABLE}
)
# The folders of OpenCode's config, sessions, state, cache and temporary files.
FOLDER_VARIABLES = (
    *("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
    "TMPDIR",
)
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_LOGIN_SECONDS = 20.0
_PRINT_ENVIRONMENT = "import json, os, sys; sys.stdout.write(sys.argv[1] + json.dumps(dict(os.environ)))"

# The provider of OpenCode's makers, some of whose models need no login, and its address.
FREE_PROVIDER = "opencode"
FREE_ADDRESS = "https://opencode.ai/zen/v1"
_MAX_FILE_BYTES = 50_000_000
# Variables of widely used providers. OpenCode has a list of all providers, once it has fetched it.
_KEY_VARIABLES = {
    "anthropic": ["ANTHROPIC_API_KEY"],
    "openai": ["OPENAI_API_KEY"],
    "google": ["GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY"],
    "amazon-bedrock": ["AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE"],
    "azure": ["AZURE_API_KEY"],
    "openrouter": ["OPENROUTER_API_KEY"],
    "mistral": ["MISTRAL_API_KEY"],
    "groq": ["GROQ_API_KEY"],
    "deepseek": ["DEEPSEEK_API_KEY"],
    "xai": ["XAI_API_KEY"],
    "opencode": ["OPENCODE_API_KEY"],
}
# Names of variables that may make a provider usable which is not listed here.
_MAY_BE_KEY = re.compile(r"(?i)key|token|secret|credential|account|^(aws|azure|google|gcp|vertex|cloudflare)_")
_PROVIDER_KEYS = ("provider", "enabled_providers", "disabled_providers")
# The folder of the config that an administrator has made for all users.
_MANAGED_FOLDER = Path("/etc/opencode")
_CODE_FOLDERS = ("plugin", "plugins", "tool", "tools")
_MAX_CONFIG_BYTES = 1_000_000


class EnvironmentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Input for an agent's environment. Without a `port` there is no gateway, and no `config` of Rookery either."""

    workspace: Path
    token: str
    password: str
    port: int | None
    config: Path | None
    content: str
    ripgrep: Path | None = None
    # Whether the repository's own OpenCode config may take effect.
    project_config: bool = False
    # Whether there is a network from which OpenCode could fetch its list of models.
    online: bool = True
    # Whether something that OpenCode loads may need packages from npm.
    packages: bool = True


def build_environment(user: Mapping[str, str], spec: EnvironmentSpec) -> dict[str, str]:
    """Return the environment of an agent, based on the user's."""
    variables = remove_agent_variables(user)
    path = str(spec.workspace)
    variables |= {
        "ROOKERY_WORKSPACE_PATH": path,
        "ROOKERY_WORKSPACE_HEADER": encode_path_header(path),
        "ROOKERY_TOKEN": spec.token,
        "CODEHYDRA_WORKSPACE_PATH": path,
        "OPENCODE_SERVER_USERNAME": USERNAME,
        "OPENCODE_SERVER_PASSWORD": spec.password,
        "OPENCODE_CONFIG_CONTENT": spec.content,
        # The version is pinned, and an update would replace the program of every agent.
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    variables |= _build_startup_variables(user, packages=spec.packages)
    if not spec.online:
        # OpenCode has a built-in list, and would retry the download again and again.
        variables.setdefault("OPENCODE_DISABLE_MODELS_FETCH", "1")
    for name in ("ROOKERY_MCP_PORT", "CODEHYDRA_MCP_PORT"):
        variables.pop(name, None)
        if spec.port is not None:
            variables[name] = str(spec.port)
    if spec.port is not None and spec.config is not None:
        variables["OPENCODE_CONFIG"] = str(spec.config)
    if spec.ripgrep is not None:
        variables["PATH"] = os.pathsep.join(part for part in (variables.get("PATH"), str(spec.ripgrep.parent)) if part)
    if not spec.project_config:
        variables |= {"OPENCODE_DISABLE_PROJECT_CONFIG": "1", GUARD_VARIABLE: str(GUARD_FILE)}
    return variables


def startup_variables(user: Mapping[str, str], *, packages: bool = True) -> tuple[str, ...]:
    """Return the variables that are set only for OpenCode's start; Rookery's plugin removes them before tools run."""
    return tuple(_build_startup_variables(user, packages=packages))


def _build_startup_variables(user: Mapping[str, str], *, packages: bool) -> dict[str, str]:
    variables = _NO_NPM_RETRIES if packages else _NO_NPM_RETRIES | _NO_REGISTRY
    return {name: value for name, value in variables.items() if name not in user}


def list_warnings(user: Mapping[str, str], spec: EnvironmentSpec) -> list[str]:
    """Return warnings about functions that do not work in this agent, for the log and for people."""
    warnings: list[str] = []
    if spec.port is None:
        warnings.append("there is no gateway port, so the agent starts without Rookery's MCP entry")
    if are_plugins_disabled(user):
        warnings.append(
            "OPENCODE_PURE is set: without Rookery's plugin, tool shells see the agent's password, and no tool can be "
            "run by its name"
        )
    return warnings


def remove_database(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the choice of a database: a confined agent has its own."""
    return {name: value for name, value in environment.items() if name != "OPENCODE_DB"}


def list_opencode_paths(environment: Mapping[str, str]) -> list[Path]:
    """Return the user's files that OpenCode reads to find its config and the logins of model providers."""
    paths = [
        _opencode_folder(environment, "XDG_DATA_HOME", ".local/share") / "auth.json",
        _opencode_folder(environment, "XDG_CONFIG_HOME", ".config"),
    ]
    return paths + [Path(environment[name]) for name in ("OPENCODE_CONFIG_DIR",) if environment.get(name)]


def prepare_private_data(user: Mapping[str, str], private: Mapping[str, str]) -> None:
    """Give the private folders of a confined agent the user's logins, as a link, and the model that was used last.

    Only once, before an agent has run: later an agent could lead what is written here elsewhere.
    """
    data, state = (Path(private[name]) / "opencode" for name in ("XDG_DATA_HOME", "XDG_STATE_HOME"))
    if os.path.lexists(data) or os.path.lexists(state):
        return
    model = _opencode_folder(user, "XDG_STATE_HOME", ".local/state") / "model.json"
    state.mkdir(mode=0o700)
    with contextlib.suppress(OSError):
        (state / "model.json").write_bytes(read_plain(model, _MAX_CONFIG_BYTES))
    data.mkdir(mode=0o700)
    (data / "auth.json").symlink_to(_opencode_folder(user, "XDG_DATA_HOME", ".local/share") / "auth.json")


def is_proxied(environment: Mapping[str, str]) -> bool:
    """Return whether a proxy is set: then other processes cannot determine which servers are reachable."""
    return any(name.lower() in _PROXIES and value for name, value in environment.items())


def are_plugins_disabled(user: Mapping[str, str]) -> bool:
    return user.get("OPENCODE_PURE", "").lower() in ("1", "true")


def encode_path_header(path: str) -> str:
    """Return the path as the value of an HTTP header, percent-encoded if it has a character that is not allowed.

    OpenCode inserts the value into JSON text without escaping it, so quotes and backslashes are not allowed either.
    """
    if path.isascii() and path.isprintable() and not set(path) & {'"', "\\"}:
        return path
    return quote(path.encode("utf-8", "surrogateescape"), safe="/ !#$&'()*+,:;=?@[]-._~")


def find_database(environment: Mapping[str, str]) -> Path:
    """Return the path of the database in which OpenCode keeps its sessions."""
    data = (
        Path(environment.get("XDG_DATA_HOME") or Path(environment.get("HOME") or Path.home()) / ".local" / "share")
        / "opencode"
    )
    file_name = environment.get("OPENCODE_DB")
    return data / file_name if file_name else data / "opencode.db"


async def load_user_environment(kind: EnvironmentSource, spawner: Spawner) -> dict[str, str]:
    """Return the environment that agents start from, according to the setting `agents.env_from`."""
    return remove_agent_variables(os.environ) if kind == "daemon" else await load_login_environment(spawner)


def remove_agent_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables of an agent: a daemon may be started from an agent's own shell."""
    agent_variables = _AGENT_VARIABLES if "ROOKERY_WORKSPACE_PATH" in environment else frozenset[str]()
    return {name: value for name, value in environment.items() if name not in _NOT_INHERITED | agent_variables}


async def load_login_environment(spawner: Spawner, shell: Path | None = None) -> dict[str, str]:
    """Return the environment of the user's login shell, without any output of its start-up files."""
    shell = shell or Path(os.environ.get("SHELL") or pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh")
    mark = new_id()
    command = f"exec {shlex.join([sys.executable, '-I', '-c', _PRINT_ENVIRONMENT, mark])}"
    remedy = 'fix its start-up files, or set agents.env_from = "daemon"'
    try:
        result = await spawner.run(
            [str(shell), "-l", "-c", command],
            name="login shell",
            cwd=Path.home(),
            env=environment.allowed_environment(),
            timeout=_LOGIN_SECONDS,
        )
    except RookeryError as error:
        raise RookeryError("agent-unavailable", f"the login shell {shell}: {error.message}", remedy) from error
    _, separator, text = result.stdout.decode("utf-8", "surrogateescape").partition(mark)
    if not separator or result.cut:
        printed = result.stderr.decode("utf-8", "replace").strip()[-400:]
        cause = find_cause(result.returncode or 1, printed, (Path.home(),))
        text = cause.message if cause is not None else printed or f"it {describe_end(result.returncode)}"
        raise RookeryError(
            "agent-unavailable", f"the login shell {shell} did not print its environment: {text}", remedy
        )
    return remove_agent_variables(json.loads(text))


class ProviderLogin(msgspec.Struct, frozen=True):
    """A provider, and the reason why it is usable; never the key itself."""

    provider: str
    by: str


class _ListedProvider(msgspec.Struct):
    env: list[str]


def find_logins(environment: Mapping[str, str], read: ParseJson) -> list[ProviderLogin]:
    """Return each provider once, with the first reason. `read` parses JSON with comments."""
    logins: dict[str, ProviderLogin] = {}
    for login in (*_find_signed_in(environment), *_find_keys(environment), *_find_configured(environment, read)):
        logins.setdefault(login.provider, login)
    return list(logins.values())


def may_have_provider(environment: Mapping[str, str], workspace: Path, read: ParseJson) -> bool:
    """Return whether OpenCode may find a provider in `workspace`, apart from its own; True in doubt."""
    if any(
        _MAY_BE_KEY.search(name) for name, value in environment.items() if value and not name.startswith("ROOKERY_")
    ):
        return True
    if any((workspace / name).exists() for name in (*CONFIG_FILES, CONFIG_FOLDER)) or find_logins(environment, read):
        return True
    return any(config.get(key) for _, config in _configs(environment, read) for key in _PROVIDER_KEYS)


def _find_signed_in(environment: Mapping[str, str]) -> Iterator[ProviderLogin]:
    file = _opencode_folder(environment, "XDG_DATA_HOME", ".local/share") / "auth.json"
    content = environment.get("OPENCODE_AUTH_CONTENT")
    logins = _parse_object(content.encode(), json.loads) if content else _read_object(file, json.loads)
    for provider, login in logins.items():
        if isinstance(login, dict):
            yield ProviderLogin(provider, "signed in")


def _find_keys(environment: Mapping[str, str]) -> Iterator[ProviderLogin]:
    listed = _read_object(_opencode_folder(environment, "XDG_CACHE_HOME", ".cache") / "models.json", json.loads)
    for provider, variables in (_read_key_variables(listed) or _KEY_VARIABLES).items():
        for variable in variables:
            if environment.get(variable):
                yield ProviderLogin(provider, variable)


def _read_key_variables(listed: Mapping[str, Any]) -> dict[str, list[str]]:
    variables: dict[str, list[str]] = {}
    for provider, entry in listed.items():
        with contextlib.suppress(msgspec.ValidationError):
            variables[provider] = msgspec.convert(entry, _ListedProvider).env
    return variables


def _find_configured(environment: Mapping[str, str], read: ParseJson) -> Iterator[ProviderLogin]:
    """Yield the providers to which the user's config gives an address or a key."""
    for where, config in _configs(environment, read):
        yield from _providers_in(config, where)


def _configs(environment: Mapping[str, str], read: ParseJson) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the user's own configs, each with its name."""
    folder = _opencode_folder(environment, "XDG_CONFIG_HOME", ".config")
    files = [folder / name for name in (*CONFIG_FILES, "config.json")]
    files += [Path(environment["OPENCODE_CONFIG"])] if environment.get("OPENCODE_CONFIG") else []
    for file in files:
        yield file.name, _read_object(file, read)
    if inline := environment.get("OPENCODE_CONFIG_CONTENT"):
        yield "OPENCODE_CONFIG_CONTENT", _parse_object(inline.encode(), read)


def _providers_in(config: Mapping[str, Any], where: str) -> Iterator[ProviderLogin]:
    providers = config.get("provider")
    for provider, settings in cast("dict[str, Any]", providers).items() if isinstance(providers, dict) else ():
        options: Any = cast("dict[str, Any]", settings).get("options") if isinstance(settings, dict) else None
        if isinstance(options, dict) and ("apiKey" in options or "baseURL" in options):
            yield ProviderLogin(provider, where)


def _opencode_folder(environment: Mapping[str, str], variable: str, usual: str) -> Path:
    home = Path(environment.get("HOME") or Path.home())
    return Path(environment.get(variable) or home / usual) / "opencode"


def _read_object(path: Path, read: ParseJson) -> dict[str, Any]:
    """Return the object in a file. A file that cannot be read counts as missing: OpenCode itself reports it."""
    try:
        return _parse_object(read_plain(path, _MAX_FILE_BYTES), read)
    except (OSError, ValueError):
        return {}


def _parse_object(data: bytes, read: ParseJson) -> dict[str, Any]:
    try:
        value: Any = read(data.decode())
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def needs_packages(
    user: Mapping[str, str], workspace: Path, *, project_config: bool, read: ParseJson, managed: Path = _MANAGED_FOLDER
) -> bool:
    """Return whether anything that OpenCode loads at its start may need packages; True if that is not known.

    `project_config` says whether the repository's own config takes effect; `read` parses JSON with comments.
    """
    home = Path(user.get("HOME") or Path.home())
    config_folder = Path(user.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    folders = [config_folder, home / CONFIG_FOLDER]
    if folder_name := user.get("OPENCODE_CONFIG_DIR"):
        folders.append(Path(folder_name))
    if project_config:
        folders.append(workspace / CONFIG_FOLDER)
    code = [folder / name for folder in folders for name in _CODE_FOLDERS]
    data = Path(user.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
    files = [folder / name for folder in folders for name in (*CONFIG_FILES, "config.json")]
    files += [workspace / name for name in CONFIG_FILES] if project_config else []
    files += [Path(user["OPENCODE_CONFIG"])] if user.get("OPENCODE_CONFIG") else []
    try:
        # If OpenCode's own package is installed already, there is no install to wait for.
        if any(path.exists() for path in (managed, config_folder / "node_modules", *code)):
            return True
        configs = [
            *_read_existing_objects(files, read),
            _require_object(user.get("OPENCODE_CONFIG_CONTENT") or "{}", read),
        ]
        content = user.get("OPENCODE_AUTH_CONTENT")
        logins = (
            [_require_object(content, json.loads)]
            if content
            else list(_read_existing_objects([data / "auth.json"], json.loads))
        )
    except (OSError, ValueError):
        return True
    return any(config.get("plugin") for config in configs) or any(_has_remote_config(entries) for entries in logins)


def _read_existing_objects(files: list[Path], read: ParseJson) -> Iterator[dict[str, Any]]:
    """Yield the objects in the files that exist."""
    for file in files:
        if file.exists():
            yield _require_object(read_plain(file, _MAX_CONFIG_BYTES).decode(), read)


def _require_object(text: str, read: ParseJson) -> dict[str, Any]:
    value: Any = read(text)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return cast("dict[str, Any]", value)


def _has_remote_config(logins: Mapping[str, Any]) -> bool:
    """Return whether OpenCode also fetches a config from the address of one of the logins."""
    return any(
        isinstance(login, dict) and cast("dict[str, Any]", login).get("type") == "wellknown"
        for login in logins.values()
    )
