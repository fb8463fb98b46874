"""The configs that an agent is started with: the generated file and the inline config.

OpenCode merges the user's own config, the file that OPENCODE_CONFIG names, the repository's config and the content of
OPENCODE_CONFIG_CONTENT, in this order; the last one wins. No file of the user's is edited: where OPENCODE_CONFIG is set
already, the generated file holds the user's config too.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import quote

import msgspec

from rookery.agents.opencode.project_config import ParseJson
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_plain, write_secret
from rookery.wire.http_client.client import HttpClient
from rookery.workspaces.model import Workspace

CONFIG_SCHEMA = "https://opencode.ai/config.json"
# The name of Rookery's own entry. A server of that name cannot be redirected.
MCP_ENTRY_NAME = "rookery"
# The model that calls the tools which Rookery is asked to run; see sessions/run_tool.py.
TOOL_PROVIDER = "rookery"
_TOOL_MODEL = "tools"
TOOL_MODEL = f"{TOOL_PROVIDER}/{_TOOL_MODEL}"
# Without this, OpenCode aborts calls after 60 seconds, before Rookery's own limits apply.
CALL_TIMEOUT_MS = 300_000
PLUGIN_FILE = Path(__file__).parent / "plugin" / "rookery.js"
# With either of these, a tool shell could approve the requests of its own session.
HIDDEN_VARIABLES = ("OPENCODE_SERVER_PASSWORD", "ROOKERY_TOKEN")

# The limit of Linux for one variable, its name included.
_MAX_VARIABLE_BYTES = 131_000
_AUTHORIZATION = {"Authorization": "Bearer {env:ROOKERY_TOKEN}"}
_GATEWAY_URL = "http://127.0.0.1:{env:ROOKERY_MCP_PORT}"
_FILE_REFERENCE = re.compile(r"\{file:([^}]+)\}")

logger = logging.getLogger("rookery.agents")

_MAX_CONFIG_BYTES = 1_000_000
# OpenCode replaces these characters in the names of tools.
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


class RedirectedServer(msgspec.Struct, frozen=True):
    """A third-party server that the gateway serves in a workspace; `timeout_ms` is the time limit of its calls."""

    name: str
    timeout_ms: int = CALL_TIMEOUT_MS


class AgentServers(msgspec.Struct, frozen=True):
    """The MCP servers of an agent. `off` are those that wait for approval, and those that are switched off.

    `usable` are those of the others that have not failed: it is worthwhile to connect to them. `ready` are those that
    have started: a connection to them does not fail because they take too long.

    `conversations` says what is off in single conversations, by session; an empty id stands for all others.
    """

    served: tuple[RedirectedServer, ...] = ()
    off: tuple[str, ...] = ()
    usable: frozenset[str] = frozenset()
    ready: frozenset[str] = frozenset()
    conversations: Mapping[str, "ConversationServers"] = {}


class ConversationServers(msgspec.Struct, frozen=True):
    """What is off in a conversation: whole servers, and the names of tools in OpenCode, also those of these servers."""

    servers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class InlineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Input of the inline config.

    `user` is the content of the user's own OPENCODE_CONFIG_CONTENT, `providers` are Rookery's model providers by id,
    `logins` are the providers that the user is signed in to, and `forgotten` are variables that must not reach any
    process that the agent starts. Without a `gateway` no server is redirected. The plugin finds later changes of the
    servers in the file `entries`.
    """

    project: str
    workspace: str
    servers: AgentServers = AgentServers()
    gateway: bool = True
    entries: Path | None = None
    providers: Mapping[str, Any] = {}
    logins: Sequence[str] = ()
    forgotten: Sequence[str] = ()
    # What the model reads after an output that looks like a refused access; empty without a sandbox.
    refusal_note: str = ""
    user: Mapping[str, Any] = {}


def list_tool_names(server: str, tool: str, public: str) -> tuple[str, str]:
    """Return the names of a tool in OpenCode: of its server's own entry, and of Rookery's, where it is `public`."""
    return _make_tool_name(server, tool), _make_tool_name(MCP_ENTRY_NAME, public)


def _make_tool_name(entry: str, tool: str) -> str:
    return "_".join(_NOT_IN_NAMES.sub("_", part) for part in (entry, tool))


def build_mcp_entry() -> dict[str, Any]:
    """Return the MCP entry of the gateway, with placeholders for its port, the workspace and the token."""
    return {
        "type": "remote",
        "url": f"{_GATEWAY_URL}/mcp",
        "headers": {"X-Workspace-Path": "{env:ROOKERY_WORKSPACE_HEADER}", **_AUTHORIZATION},
        "enabled": True,
        "oauth": False,
        "timeout": CALL_TIMEOUT_MS,
    }


def build_tool_provider(port: int) -> dict[str, Any]:
    """Return the provider of the model that calls tools, by its id. It identifies an agent by its workspace's token."""
    model = {
        "name": "Tools by name",
        "tool_call": True,
        "attachment": True,
        "modalities": {"input": ["text", "image"], "output": ["text"]},
        "limit": {"context": 10_000_000, "output": 8_000},
    }
    options = {"baseURL": f"http://127.0.0.1:{port}/v1", "apiKey": "{env:ROOKERY_TOKEN}"}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Rookery",
        "options": options,
        "models": {_TOOL_MODEL: model},
    }
    return {TOOL_PROVIDER: provider}


def render_config_file(user: Mapping[str, Any] | None = None, folder: Path | None = None) -> bytes:
    """Return the content of the file for OPENCODE_CONFIG, including the `user` config that this file replaces.

    `folder` is the folder of the user's config: paths relative to it become absolute.
    """
    ours = {"$schema": CONFIG_SCHEMA, "mcp": {MCP_ENTRY_NAME: build_mcp_entry()}}
    config = ours if user is None else merge_configs(_make_absolute(user, folder or Path("/")), ours)
    return (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()


def render_inline_config(config: InlineConfig) -> str:
    """Return the content of OPENCODE_CONFIG_CONTENT."""
    ours: dict[str, Any] = {"$schema": CONFIG_SCHEMA, "plugin": [_build_plugin(config)]}
    if servers := build_server_entries(config.project, config.workspace, config.servers, gateway=config.gateway):
        ours["mcp"] = servers
    if config.providers:
        ours["provider"] = dict(config.providers)
    user_plugins = config.user.get("plugin")
    if isinstance(user_plugins, list):
        ours["plugin"] = [*cast("list[Any]", user_plugins), *ours["plugin"]]
    content = json.dumps(merge_configs(config.user, ours), ensure_ascii=False)
    if (size := len(content.encode("utf-8", "surrogatepass"))) > _MAX_VARIABLE_BYTES:
        raise RookeryError(
            "agent-unavailable",
            f"the config for this agent has {size} bytes; an environment variable holds at most {_MAX_VARIABLE_BYTES}",
            "remove servers from this workspace's config, or shorten OPENCODE_CONFIG_CONTENT",
        )
    return content


def merge_configs(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `under` overlaid with `over`: objects are merged member by member, other values are replaced."""
    merged = dict(under)
    for key, value in over.items():
        existing = merged.get(key)
        both = isinstance(existing, Mapping) and isinstance(value, Mapping)
        merged[key] = (
            merge_configs(cast("Mapping[str, Any]", existing), cast("Mapping[str, Any]", value)) if both else value
        )
    return merged


def build_server_entries(
    project: str, workspace: str, servers: AgentServers, *, gateway: bool = True
) -> dict[str, Any]:
    """Return the MCP entries for the servers of a workspace, without that of the gateway itself."""
    base_url = f"{_GATEWAY_URL}/w/{_quote_segment(project)}/{_quote_segment(workspace)}/s"
    entries: dict[str, Any] = {name: {"enabled": False} for name in servers.off}
    for server in servers.served if gateway else ():
        entries[server.name] = {
            "type": "remote",
            "url": f"{base_url}/{_quote_segment(server.name)}/mcp",
            "headers": _AUTHORIZATION,
            "enabled": True,
            "oauth": False,
            "timeout": server.timeout_ms,
        }
    if gateway and MCP_ENTRY_NAME in entries:
        # A repository's config has priority over the file; this entry has priority over both.
        entries[MCP_ENTRY_NAME] = build_mcp_entry()
    return entries


def _build_plugin(config: InlineConfig) -> list[Any]:
    options: dict[str, Any] = {
        "hidden": HIDDEN_VARIABLES,
        "forgotten": config.forgotten,
        "providers": list(config.providers),
        "logins": config.logins,
    }
    if config.entries is not None:
        launched = [*config.servers.off, *(server.name for server in config.servers.served)]
        options |= {"entries": str(config.entries), "launched": launched}
    if config.refusal_note:
        options["refusal_note"] = config.refusal_note
    return [PLUGIN_FILE.as_uri(), options]


def _quote_segment(name: str) -> str:
    return quote(name, safe="@")


def _make_absolute(user: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a config whose file references and plugins do not depend on its folder."""
    config = cast("dict[str, Any]", _with_absolute_references(dict(user), folder))
    plugins = config.get("plugin")
    if isinstance(plugins, list):
        config["plugin"] = list(_with_absolute_plugins(cast("list[Any]", plugins), folder))
    return config


def _with_absolute_references(value: Any, folder: Path) -> Any:
    if isinstance(value, str):
        return _FILE_REFERENCE.sub(lambda match: f"{{file:{_absolute_path(match[1], folder)}}}", value)
    if isinstance(value, Mapping):
        return {key: _with_absolute_references(item, folder) for key, item in cast("Mapping[str, Any]", value).items()}
    return (
        [_with_absolute_references(item, folder) for item in cast("list[Any]", value)]
        if isinstance(value, list)
        else value
    )


def _with_absolute_plugins(plugins: Iterable[Any], folder: Path) -> Iterable[Any]:
    for plugin in plugins:
        if isinstance(plugin, str) and plugin.startswith("."):
            yield (folder / plugin).as_uri()
        elif isinstance(plugin, list) and plugin and isinstance(plugin[0], str) and plugin[0].startswith("."):
            yield [(folder / plugin[0]).as_uri(), *cast("list[Any]", plugin)[1:]]
        else:
            yield plugin


def _absolute_path(path: str, folder: Path) -> str:
    return path if path.startswith(("/", "~")) else str(folder / path)


class UserConfig(msgspec.Struct, frozen=True):
    """The user's own config from environment variables; `file_content` is the content of `file`."""

    content: Mapping[str, Any] = {}
    file: Path | None = None
    file_content: Mapping[str, Any] = {}


def read_user_config(user: Mapping[str, str], parse_json: ParseJson) -> UserConfig:
    """Read the user's own OPENCODE_CONFIG and OPENCODE_CONFIG_CONTENT; raise RookeryError if one is not valid."""
    content = _parse_object(user.get("OPENCODE_CONFIG_CONTENT") or "{}", "OPENCODE_CONFIG_CONTENT", parse_json)
    file_name = user.get("OPENCODE_CONFIG")
    if not file_name:
        return UserConfig(content)
    file = Path(file_name)
    if not file.is_absolute():
        # Relative to an agent's folder it would be a file of the repository, which nobody has approved.
        logger.warning("OPENCODE_CONFIG is ignored: %r is not an absolute path", file_name)
        return UserConfig(content)
    try:
        text = read_plain(file, _MAX_CONFIG_BYTES).decode()
    except FileNotFoundError:
        return UserConfig(content)  # as in OpenCode
    except (OSError, ValueError) as error:
        raise RookeryError("agent-unavailable", f"OPENCODE_CONFIG cannot be read: {error}", f"fix {file}") from error
    return UserConfig(content, file, _parse_object(text, str(file), parse_json))


def write_config_file(state: Path) -> Path:
    """Write the generated file. Call this at every start of the gateway, before any agent starts."""
    path = _config_folder(state) / "rookery-mcp.json"
    write_secret(path, render_config_file())
    return path


def prepare_config_file(state: Path, user: UserConfig) -> Path:
    """Return the file for OPENCODE_CONFIG. If the user has one, write a separate file that contains both configs."""
    if user.file is None:
        return _config_folder(state) / "rookery-mcp.json"
    name = hashlib.sha256(str(user.file).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    path = _config_folder(state) / f"rookery-mcp-with-{name}.json"
    write_secret(path, render_config_file(user.file_content, user.file.parent))
    return path


def _config_folder(state: Path) -> Path:
    folder = state / "opencode"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _parse_object(text: str, where: str, parse_json: ParseJson) -> Mapping[str, Any]:
    try:
        value: Any = parse_json(text)
    except ValueError as error:
        raise RookeryError("agent-unavailable", f"{where} is not JSON: {error}", "fix it, or unset it") from error
    if not isinstance(value, dict):
        raise RookeryError("agent-unavailable", f"{where} is not a JSON object", "fix it, or unset it")
    return cast("dict[str, Any]", value)


class LaunchContext(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a launch.

    Without a `port` there is no gateway. `tool_port` is the port of the model that calls tools. `unapproved` says which
    parts of the repository's own OpenCode config have no effect, because nobody has approved them.
    """

    port: int | None = None
    tool_port: int | None = None
    servers: AgentServers = AgentServers()
    project_config: bool = True
    unapproved: str = ""

    def has_changed(self, current: "LaunchContext", *, follows_servers: bool) -> bool:
        """Return whether an agent with this context has to be restarted for the current one to take effect.

        An agent that follows its servers does not have to be restarted for them.
        """
        servers = self.servers
        if not follows_servers:
            servers = msgspec.structs.replace(current.servers, ready=self.servers.ready)
        return msgspec.structs.replace(current, servers=servers) != self


class LaunchContextSource(Protocol):
    """Provides launch contexts from the gateway and the user's approvals. All agents share the HTTP `client`."""

    def client(self) -> HttpClient: ...

    async def prepare_launch(self, workspace: Workspace) -> LaunchContext: ...
