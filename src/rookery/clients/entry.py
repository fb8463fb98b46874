"""Rookery as an entry in the config of one client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rookery.clients.registry import Client, Transport
from rookery.system.errors import RookeryError

TOKEN_VARIABLE = "ROOKERY_TOKEN"

# A call may wait for another agent's turn. The default limit of clients is a minute.
_CALL_SECONDS = 300
# The members that say how to connect, of all clients. Those that the new entry does not have are removed from an older
# entry, and everything else in it stays.
CONNECTION_KEYS = frozenset(
    {
        *("type", "transport", "url", "serverUrl", "httpUrl", "headers", "oauth", "command", "args", "env"),
        *("environment", "bearer_token_env_var", "http_headers", "env_http_headers"),
    }
)


@dataclass(frozen=True)
class EntryTarget:
    """The server that a client connects to: an address, and the command that bridges to the same."""

    name: str
    url: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Entry:
    """The value of a server's entry. VS Code asks the user for `inputs`, and keeps them in a list of their own."""

    value: dict[str, Any]
    inputs: tuple[dict[str, Any], ...] = ()


def make_entry(client: Client, transport: Transport, target: EntryTarget) -> Entry:
    """Return the entry for a client, without a secret: the token is referenced by the name of a variable.

    Raise RookeryError if the client does not support the transport.
    """
    if transport == "bridge":
        return Entry(_make_bridge_entry(client, target))
    if client.placeholder is None:
        text = f"{client.title} does not expand variables in headers, so its file would have to contain the token"
        if client.id == "claude-desktop":
            text = f"{client.title} starts servers over stdio only"
        raise RookeryError("invalid-input", text, "use --transport bridge")
    if client.id == "codex":
        value = {"url": target.url, "bearer_token_env_var": TOKEN_VARIABLE, "tool_timeout_sec": _CALL_SECONDS}
        return Entry(value)
    variable = TOKEN_VARIABLE if client.id != "vscode" else f"{target.name}-token"
    headers = {"Authorization": f"Bearer {client.placeholder.replace('V', variable)}"}
    if client.id == "opencode":
        # OpenCode would try to sign in without `oauth: false`, and give up after a minute without `timeout`.
        rest = {"enabled": True, "oauth": False, "timeout": _CALL_SECONDS * 1000}
        return Entry({"type": "remote", "url": target.url, "headers": headers} | rest)
    if client.id == "windsurf":
        return Entry({"serverUrl": target.url, "headers": headers})
    if client.id == "vscode":
        text = f"the token of Rookery, for the server {target.name}"
        prompt = {"type": "promptString", "id": variable, "description": text, "password": True}
        return Entry({"type": "http", "url": target.url, "headers": headers}, (prompt,))
    return Entry({"type": "http", "url": target.url, "headers": headers})


def _make_bridge_entry(client: Client, target: EntryTarget) -> dict[str, Any]:
    if client.id == "opencode":
        value: dict[str, Any] = {"type": "local", "command": list(target.command), "enabled": True}
        value |= {"environment": dict(target.environment)} if target.environment else {}
        return value | {"timeout": _CALL_SECONDS * 1000}
    value = {"type": "stdio"} if client.id in ("claude-code", "vscode") else {}
    value |= {"command": target.command[0], "args": list(target.command[1:])}
    return value | ({"env": dict(target.environment)} if target.environment else {})
