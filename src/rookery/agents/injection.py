"""What OpenCode is told of Rookery: the generated config file, and the inline config that redirects servers.

OpenCode merges the user's own config, the file that OPENCODE_CONFIG names, the repository's config and the content of
OPENCODE_CONFIG_CONTENT, in this order; the last that says something counts. Nothing of the user's is edited.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import msgspec

from rookery.system.errors import RookeryError

SCHEMA = "https://opencode.ai/config.json"
# The name of our own entry. A server of that name cannot be redirected.
ENTRY = "rookery"
# The model that plays the tools which Rookery is asked to run; see sessions/executing.py.
TOOL_PROVIDER, _TOOL_MODEL = "rookery", "tools"
TOOL_MODEL = f"{TOOL_PROVIDER}/{_TOOL_MODEL}"
# OpenCode cuts calls off after 60 seconds otherwise, and Rookery's own limits never get their turn.
TIMEOUT_MS = 300_000
PLUGIN = Path(__file__).parent / "plugin" / "rookery.js"
# With either of these a tool shell could approve what its own session asks for.
HIDDEN = ("OPENCODE_SERVER_PASSWORD", "ROOKERY_TOKEN")

# What Linux takes for one variable, its name included.
_LARGEST = 131_000
_AUTHORIZATION = {"Authorization": "Bearer {env:ROOKERY_TOKEN}"}
_GATEWAY = "http://127.0.0.1:{env:ROOKERY_MCP_PORT}"
_REFERENCE = re.compile(r"\{file:([^}]+)\}")


class Redirected(msgspec.Struct, frozen=True):
    """A third-party server that the gateway serves in a workspace; the time-out is the one of its calls."""

    name: str
    timeout_ms: int = TIMEOUT_MS


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into the inline config. `off` are servers that wait for approval, and those that were switched off.

    `user` is the content of the user's own OPENCODE_CONFIG_CONTENT, `providers` are model providers of ours by id,
    `logins` those that the user is signed in to, and `forgotten` are variables of which nothing that the agent starts
    is to know. Without a gateway none is redirected.
    """

    project: str
    workspace: str
    servers: Sequence[Redirected] = ()
    off: Sequence[str] = ()
    gateway: bool = True
    providers: Mapping[str, Any] = {}
    logins: Sequence[str] = ()
    forgotten: Sequence[str] = ()
    user: Mapping[str, Any] = {}


def own_entry() -> dict[str, Any]:
    return {
        "type": "remote",
        "url": f"{_GATEWAY}/mcp",
        "headers": {"X-Workspace-Path": "{env:ROOKERY_WORKSPACE_HEADER}", **_AUTHORIZATION},
        "enabled": True,
        "oauth": False,
        "timeout": TIMEOUT_MS,
    }


def tool_provider(port: int) -> dict[str, Any]:
    """The provider of the model that plays tools, by its id; it knows an agent by the token of its workspace."""
    model = {
        "name": "Tools by name",
        "tool_call": True,
        "attachment": True,
        "modalities": {"input": ["text", "image"], "output": ["text"]},
        "limit": {"context": 10_000_000, "output": 8_000},
    }
    options = {"baseURL": f"http://127.0.0.1:{port}/v1", "apiKey": "{env:ROOKERY_TOKEN}"}
    made = {"npm": "@ai-sdk/openai-compatible", "name": "Rookery", "options": options, "models": {_TOOL_MODEL: model}}
    return {TOOL_PROVIDER: made}


def config_file(user: Mapping[str, Any] | None = None, folder: Path | None = None) -> bytes:
    """The file that OPENCODE_CONFIG names. It takes the place of the user's own, of which it then holds all.

    `folder` is where the user's lies: what that names from there is named from everywhere.
    """
    ours = {"$schema": SCHEMA, "mcp": {ENTRY: own_entry()}}
    told = ours if user is None else merged(_from_everywhere(user, folder or Path("/")), ours)
    return (json.dumps(told, indent=2, ensure_ascii=False) + "\n").encode()


def inline_config(injection: Injection) -> str:
    """The content of OPENCODE_CONFIG_CONTENT."""
    ours: dict[str, Any] = {"$schema": SCHEMA, "plugin": [_plugin(injection)]}
    if servers := _servers(injection):
        ours["mcp"] = servers
    if injection.providers:
        ours["provider"] = dict(injection.providers)
    theirs = injection.user.get("plugin")
    if isinstance(theirs, list):
        ours["plugin"] = [*cast("list[Any]", theirs), *ours["plugin"]]
    content = json.dumps(merged(injection.user, ours), ensure_ascii=False)
    if (size := len(content.encode("utf-8", "surrogatepass"))) > _LARGEST:
        raise RookeryError(
            "agent-unavailable",
            f"the config for this agent has {size} bytes, and a variable holds at most {_LARGEST}",
            "take servers out of this workspace's config, or shorten OPENCODE_CONFIG_CONTENT",
        )
    return content


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """One config over another: objects are merged member by member, everything else is replaced."""
    found = dict(under)
    for key, value in over.items():
        there = found.get(key)
        both = isinstance(there, Mapping) and isinstance(value, Mapping)
        found[key] = merged(cast("Mapping[str, Any]", there), cast("Mapping[str, Any]", value)) if both else value
    return found


def _servers(injection: Injection) -> dict[str, Any]:
    place = f"{_GATEWAY}/w/{_segment(injection.project)}/{_segment(injection.workspace)}/s"
    found: dict[str, Any] = {name: {"enabled": False} for name in injection.off}
    for server in injection.servers if injection.gateway else ():
        found[server.name] = {
            "type": "remote",
            "url": f"{place}/{_segment(server.name)}/mcp",
            "headers": _AUTHORIZATION,
            "enabled": True,
            "oauth": False,
            "timeout": server.timeout_ms,
        }
    if injection.gateway and ENTRY in found:
        # A repository's config outranks the file; here ours is the last word on what `rookery` is.
        found[ENTRY] = own_entry()
    return found


def _plugin(injection: Injection) -> list[Any]:
    options = {
        "hidden": HIDDEN,
        "forgotten": injection.forgotten,
        "providers": list(injection.providers),
        "logins": injection.logins,
    }
    return [PLUGIN.as_uri(), options]


def _segment(name: str) -> str:
    return quote(name, safe="@")


def _from_everywhere(user: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A config whose references to files and whose plugins do not depend on where it lies."""
    found = cast("dict[str, Any]", _with_whole_paths(dict(user), folder))
    plugins = found.get("plugin")
    if isinstance(plugins, list):
        found["plugin"] = list(_plugins(cast("list[Any]", plugins), folder))
    return found


def _with_whole_paths(value: Any, folder: Path) -> Any:
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: f"{{file:{_whole(found[1], folder)}}}", value)
    if isinstance(value, Mapping):
        return {key: _with_whole_paths(one, folder) for key, one in cast("Mapping[str, Any]", value).items()}
    return [_with_whole_paths(one, folder) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def _plugins(plugins: Iterable[Any], folder: Path) -> Iterable[Any]:
    for one in plugins:
        if isinstance(one, str) and one.startswith("."):
            yield (folder / one).as_uri()
        elif isinstance(one, list) and one and isinstance(one[0], str) and one[0].startswith("."):
            yield [(folder / one[0]).as_uri(), *cast("list[Any]", one)[1:]]
        else:
            yield one


def _whole(path: str, folder: Path) -> str:
    return path if path.startswith(("/", "~")) else str(folder / path)
