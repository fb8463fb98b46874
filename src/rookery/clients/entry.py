"""Rookery as one client writes a server down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rookery.clients.known import Client, Transport
from rookery.system.errors import RookeryError

TOKEN = "ROOKERY_TOKEN"

# A model may wait for another agent's turn; what a client allows by itself is a minute.
_CALL_SECONDS = 300
# How the member that says how to connect may be called, by any of the clients: what of these an entry of ours does not
# have is taken out of an older one, and everything else in it stays.
OURS = frozenset(
    {
        *("type", "transport", "url", "serverUrl", "httpUrl", "headers", "oauth", "command", "args", "env"),
        *("environment", "bearer_token_env_var", "http_headers", "env_http_headers"),
    }
)


@dataclass(frozen=True)
class Target:
    """What the client is to be connected to: an address, and the command that bridges to the same."""

    name: str
    url: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Entry:
    """What stands under the name. `inputs` are asked of the user by VS Code, which has a list of its own for them."""

    value: dict[str, Any]
    inputs: tuple[dict[str, Any], ...] = ()


def entry_of(client: Client, transport: Transport, target: Target) -> Entry:
    """Without a secret: the token is named, not written. RookeryError where the client cannot do it that way."""
    if transport == "bridge":
        return Entry(_bridged(client, target))
    if client.placeholder is None:
        told = f"{client.title} expands no variable in a header, so the token would have to stand in its file"
        if client.id == "claude-desktop":
            told = f"{client.title} starts servers over stdio only"
        raise RookeryError("invalid-input", told, "use --transport bridge")
    if client.id == "codex":
        value = {"url": target.url, "bearer_token_env_var": TOKEN, "tool_timeout_sec": _CALL_SECONDS}
        return Entry(value)
    variable = TOKEN if client.id != "vscode" else f"{target.name}-token"
    headers = {"Authorization": f"Bearer {client.placeholder.replace('V', variable)}"}
    if client.id == "opencode":
        # Without `oauth: false` it would try to sign in, and without `timeout` it would give up after a minute.
        rest = {"enabled": True, "oauth": False, "timeout": _CALL_SECONDS * 1000}
        return Entry({"type": "remote", "url": target.url, "headers": headers} | rest)
    if client.id == "windsurf":
        return Entry({"serverUrl": target.url, "headers": headers})
    if client.id == "vscode":
        told = f"the token of Rookery, for the server {target.name}"
        asked = {"type": "promptString", "id": variable, "description": told, "password": True}
        return Entry({"type": "http", "url": target.url, "headers": headers}, (asked,))
    return Entry({"type": "http", "url": target.url, "headers": headers})


def _bridged(client: Client, target: Target) -> dict[str, Any]:
    if client.id == "opencode":
        value: dict[str, Any] = {"type": "local", "command": list(target.command), "enabled": True}
        value |= {"environment": dict(target.environment)} if target.environment else {}
        return value | {"timeout": _CALL_SECONDS * 1000}
    value = {"type": "stdio"} if client.id in ("claude-code", "vscode") else {}
    value |= {"command": target.command[0], "args": list(target.command[1:])}
    return value | ({"env": dict(target.environment)} if target.environment else {})
