"""The clients that Rookery can configure: their files, and what each understands in them."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Transport = Literal["http", "bridge"]
Scope = Literal["user", "project"]


@dataclass(frozen=True)
class Client:
    """A client that Rookery can configure.

    Of `files` and `project_files`, the first that exists is used, else the last. Without `project_files` the client has
    no config in projects. `key` is the member with the servers. `placeholder` is how the client writes the value of a
    variable in a header; with None it cannot, and only the bridge can be used. `default` is the default transport.
    """

    id: str
    title: str
    files: tuple[str, ...]
    project_files: tuple[str, ...] = ()
    key: str = "mcpServers"
    placeholder: str | None = None
    default: Transport = "http"
    next_step: str = "restart it, or reload its MCP servers"

    @property
    def transports(self) -> tuple[Transport, ...]:
        return ("bridge",) if self.placeholder is None else ("http", "bridge")


_ALL = (
    Client(
        "claude-code",
        "Claude Code",
        ("{claude}/.claude.json",),
        (".mcp.json",),
        placeholder="${V}",
        next_step="check it: claude mcp list",
    ),
    Client(
        "claude-desktop",
        "Claude Desktop",
        ("{apps}/Claude/claude_desktop_config.json",),
        default="bridge",
        next_step="quit Claude Desktop and start it again",
    ),
    # Desktop programs seldom have the variables of a shell, which HTTP needs for the token.
    Client(
        "cursor",
        "Cursor",
        ("~/.cursor/mcp.json",),
        (".cursor/mcp.json",),
        placeholder="${env:V}",
        default="bridge",
    ),
    Client(
        "vscode",
        "VS Code",
        ("{apps}/Code/User/mcp.json",),
        (".vscode/mcp.json",),
        key="servers",
        placeholder="${input:V}",
        default="bridge",
    ),
    Client(
        "codex",
        "Codex",
        ("{codex}/config.toml",),
        (".codex/config.toml",),
        key="mcp_servers",
        placeholder="V",
        next_step="check it: codex mcp list",
    ),
    Client(
        "gemini",
        "Gemini CLI",
        ("~/.gemini/settings.json",),
        (".gemini/settings.json",),
        placeholder="${V}",
        next_step="check it, in a folder that Gemini CLI trusts: gemini mcp list",
    ),
    Client(
        "zed",
        "Zed",
        ("{config}/zed/settings.json",),
        (".zed/settings.json",),
        key="context_servers",
        default="bridge",
        next_step="Zed applies the change at once",
    ),
    Client(
        "windsurf",
        "Windsurf",
        ("~/.codeium/windsurf/mcp_config.json",),
        placeholder="${env:V}",
        default="bridge",
    ),
    Client(
        "opencode",
        "OpenCode",
        ("{config}/opencode/opencode.jsonc", "{config}/opencode/opencode.json"),
        ("opencode.jsonc", "opencode.json"),
        key="mcp",
        placeholder="{env:V}",
        next_step="check it: opencode mcp list",
    ),
)
CLIENTS: Mapping[str, Client] = {client.id: client for client in _ALL}


def config_path(
    client: Client, folder: Path | None, environment: Mapping[str, str], platform: str = sys.platform
) -> Path | None:
    """Return the client's config file: the user's, or that of the project in `folder`; None if it has none there."""
    if folder is not None:
        candidates = [folder / name for name in client.project_files]
    else:
        candidates = [_expand_path(name, environment, platform) for name in client.files]
    existing = [path for path in candidates if path.exists()]
    return (existing or candidates[-1:] or [None])[0]


def _expand_path(name: str, environment: Mapping[str, str], platform: str) -> Path:
    home = Path(environment.get("HOME") or Path.home())
    config = _parse_absolute(environment.get("XDG_CONFIG_HOME")) or home / ".config"
    apps = home / "Library" / "Application Support" if platform == "darwin" else config
    bases = {
        "{config}": config,
        "{apps}": apps,
        "{codex}": _parse_absolute(environment.get("CODEX_HOME")) or home / ".codex",
        "{claude}": _parse_absolute(environment.get("CLAUDE_CONFIG_DIR")) or home,
        "~": home,
    }
    base, _, rest = name.partition("/")
    return bases[base] / rest


def _parse_absolute(text: str | None) -> Path | None:
    return Path(text) if text and Path(text).is_absolute() else None
