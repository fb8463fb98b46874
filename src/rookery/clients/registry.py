"""The clients that Rookery knows: their files, and what each understands in them."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Transport = Literal["http", "bridge"]
Scope = Literal["user", "project"]


@dataclass(frozen=True)
class Client:
    """`files` and `project_files`: the first that exists is meant, else the last; one without `project_files` has none.

    `keys` lead to the servers. `placeholder` is how it writes the value of a variable in a header, None if it cannot:
    then there is only the bridge. `default` is the transport that is taken where none is asked for.
    """

    id: str
    title: str
    files: tuple[str, ...]
    project_files: tuple[str, ...] = ()
    key: str = "mcpServers"
    placeholder: str | None = None
    default: Transport = "http"
    after: str = "restart it, or reload its MCP servers"

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
        after="see it there: claude mcp list",
    ),
    Client(
        "claude-desktop",
        "Claude Desktop",
        ("{apps}/Claude/claude_desktop_config.json",),
        default="bridge",
        after="quit Claude Desktop and start it again",
    ),
    Client("cursor", "Cursor", ("~/.cursor/mcp.json",), (".cursor/mcp.json",), placeholder="${env:V}"),
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
        after="see it there: codex mcp list",
    ),
    Client(
        "gemini",
        "Gemini CLI",
        ("~/.gemini/settings.json",),
        (".gemini/settings.json",),
        placeholder="${V}",
        after="see it there, in a folder that Gemini CLI trusts: gemini mcp list",
    ),
    Client(
        "zed",
        "Zed",
        ("{config}/zed/settings.json",),
        (".zed/settings.json",),
        key="context_servers",
        default="bridge",
        after="Zed takes it over at once",
    ),
    Client("windsurf", "Windsurf", ("~/.codeium/windsurf/mcp_config.json",), placeholder="${env:V}"),
    Client(
        "opencode",
        "OpenCode",
        ("{config}/opencode/opencode.jsonc", "{config}/opencode/opencode.json"),
        ("opencode.jsonc", "opencode.json"),
        key="mcp",
        placeholder="{env:V}",
        after="see it there: opencode mcp list",
    ),
)
CLIENTS: Mapping[str, Client] = {one.id: one for one in _ALL}


def file_of(
    client: Client, folder: Path | None, environment: Mapping[str, str], platform: str = sys.platform
) -> Path | None:
    """Where it keeps its servers: the user's, or those of the project in `folder`; None if it has none there."""
    if folder is not None:
        candidates = [folder / name for name in client.project_files]
    else:
        candidates = [_expanded(name, environment, platform) for name in client.files]
    there = [path for path in candidates if path.exists()]
    return (there or candidates[-1:] or [None])[0]


def _expanded(name: str, environment: Mapping[str, str], platform: str) -> Path:
    home = Path(environment.get("HOME") or Path.home())
    config = _absolute(environment.get("XDG_CONFIG_HOME")) or home / ".config"
    apps = home / "Library" / "Application Support" if platform == "darwin" else config
    bases = {
        "{config}": config,
        "{apps}": apps,
        "{codex}": _absolute(environment.get("CODEX_HOME")) or home / ".codex",
        "{claude}": _absolute(environment.get("CLAUDE_CONFIG_DIR")) or home,
        "~": home,
    }
    base, _, rest = name.partition("/")
    return bases[base] / rest


def _absolute(given: str | None) -> Path | None:
    return Path(given) if given and Path(given).is_absolute() else None
