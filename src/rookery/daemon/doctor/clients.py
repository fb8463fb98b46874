"""Checks of the config files in which clients have an entry for Rookery."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from rookery.clients.edit import list_entries
from rookery.clients.entry import TOKEN_VARIABLE
from rookery.clients.install import MAX_FILE_BYTES
from rookery.clients.registry import CLIENTS, Client, config_path
from rookery.daemon.doctor.programs import Check
from rookery.daemon_client import connection
from rookery.daemon_client.failure import Failure
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_plain


def app_port() -> int | None:
    """Return the port of the daemon that runs, or was killed last: the next one binds it again."""
    url = (connection.read_runtime_file() or {}).get("url")
    return urlsplit(url).port if isinstance(url, str) else None


def workspace_ports() -> dict[int, str] | None:
    """Return the ports of open workspaces with their names; None if no daemon runs."""
    try:
        workspaces: list[dict[str, Any]] = json.loads(connection.call("GET", "/api/workspaces", start=False))
    except Failure:
        return None
    ports = {workspace["mcp"]["port"]: f"{workspace['project']}/{workspace['name']}" for workspace in workspaces}
    return {port: name for port, name in ports.items() if port is not None}


class ClientPorts(NamedTuple):
    """The ports of Rookery: the app port, and those of workspaces. None means unknown."""

    app: int | None
    workspaces: Mapping[int, str] | None = None

    @property
    def all_ports(self) -> list[int]:
        return [port for port in (self.app, *(self.workspaces or ())) if port is not None]

    def explain_wrong_url(self, url: str) -> str:
        """Return why a URL is wrong; an empty string if it is right or cannot be checked."""
        port = urlsplit(url).port
        if self.app is None or port == self.app or port in (self.workspaces or {}):
            return ""
        if self.workspaces is None and urlsplit(url).path == "/mcp":
            return ""  # it may be the port of a workspace, which only a running daemon knows
        return f"points to {url}, but the daemon listens on port {self.app}, or that workspace is closed"


def client_checks(ports: ClientPorts, environment: Mapping[str, str] = os.environ) -> list[Check]:
    """Return one check for each client whose config file contains Rookery."""
    rows: list[Check] = []
    for client in CLIENTS.values():
        path = config_path(client, None, environment)
        if path is not None and path.exists():
            rows += _check_client(client, path, ports, environment)
    return rows


def _check_client(client: Client, path: Path, ports: ClientPorts, environment: Mapping[str, str]) -> list[Check]:
    id_ = f"client {client.id}"
    reinstall = f"rookery client install {client.id}"
    try:
        entries = list_entries(client, read_plain(path, MAX_FILE_BYTES).decode())
    except RookeryError as error:
        return [Check(id_, "warning", f"{path}: {error.message}", "fix it: the client may ignore the whole file")]
    except (OSError, UnicodeDecodeError) as error:
        return [Check(id_, "warning", f"{path} cannot be read: {error}", "check the file")]
    described = [(name, *_describe_entry(name, entry)) for name, entry in entries.items()]
    ours = [(name, url, command) for name, url, command in described if url or command]
    rows: list[Check] = []
    for name, url, command in ours:
        location = f"{name} in {path}"
        if command and shutil.which(command, path=environment.get("PATH")) is None:
            rows.append(Check(id_, "warning", f"{location} runs {command}, which does not exist", reinstall))
        elif url and (problem := ports.explain_wrong_url(url)):
            rows.append(Check(id_, "warning", f"{location} {problem}", reinstall))
        elif url and client.id != "vscode" and not environment.get(TOKEN_VARIABLE):
            remedy = f"set it where {client.title} is started: rookery client print {client.id}"
            rows.append(Check(id_, "warning", f"{location} needs {TOKEN_VARIABLE}, which is not set here", remedy))
        else:
            rows.append(Check(id_, "ok", f"{location} ({'the bridge' if command else url})"))
    return rows


def _describe_entry(name: str, entry: Any) -> tuple[str, str]:
    """Return the URL or the program by which an entry starts Rookery; two empty strings if it does not."""
    if not isinstance(entry, dict):
        return "", ""
    fields = cast("dict[str, Any]", entry)
    words: Any = fields.get("command")
    all_words = cast("list[Any]", words) if isinstance(words, list) else [words, *(fields.get("args") or ())]
    command = [str(word) for word in all_words]
    if command and PurePath(command[0]).name == "rookery" and command[1:2] == ["bridge"]:
        return "", command[0]
    url = str(fields.get("url") or fields.get("serverUrl") or "")
    ours = TOKEN_VARIABLE in str(fields) or name == "rookery"
    return (url, "") if ours and urlsplit(url).hostname in ("127.0.0.1", "localhost") else ("", "")
