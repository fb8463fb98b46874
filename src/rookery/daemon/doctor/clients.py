"""What the doctor says of the files in which clients keep Rookery."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from rookery.cli import link
from rookery.cli.failure import Failure
from rookery.clients.editing import entries_in
from rookery.clients.entries import TOKEN
from rookery.clients.install import LARGEST
from rookery.clients.known import CLIENTS, Client, file_of
from rookery.daemon.programs import Check
from rookery.system.errors import RookeryError
from rookery.system.files import read_plain


def app_port() -> int | None:
    """That of the daemon that runs, or was killed last: the next one takes it again."""
    url = (link.runtime() or {}).get("url")
    return urlsplit(url).port if isinstance(url, str) else None


def workspace_ports() -> dict[int, str] | None:
    """The ports of open workspaces, with whose they are; None where no daemon tells."""
    try:
        found: list[dict[str, Any]] = json.loads(link.call("GET", "/api/workspaces", start=False))
    except Failure:
        return None
    ports = {one["mcp"]["port"]: f"{one['project']}/{one['name']}" for one in found}
    return {port: name for port, name in ports.items() if port is not None}


class Ports(NamedTuple):
    """Where Rookery is: the app port, and those of workspaces, None of both for what is not known."""

    app: int | None
    workspaces: Mapping[int, str] | None = None

    @property
    def known(self) -> list[int]:
        return [port for port in (self.app, *(self.workspaces or ())) if port is not None]

    def wrong(self, url: str) -> str:
        """What is wrong with an address, in words; nothing where it is right or nobody knows."""
        port = urlsplit(url).port
        if self.app is None or port == self.app or port in (self.workspaces or {}):
            return ""
        if self.workspaces is None and urlsplit(url).path == "/mcp":
            return ""  # it may be a workspace's, which only a running daemon tells
        return f"leads to {url}, and the daemon is at port {self.app}, or that workspace is closed"


def client_checks(ports: Ports, environment: Mapping[str, str] = os.environ) -> list[Check]:
    """One row for each client whose file has Rookery in it."""
    rows: list[Check] = []
    for client in CLIENTS.values():
        path = file_of(client, None, environment)
        if path is not None and path.exists():
            rows += _of(client, path, ports, environment)
    return rows


def _of(client: Client, path: Path, ports: Ports, environment: Mapping[str, str]) -> list[Check]:
    id_, again = f"client {client.id}", f"rookery client install {client.id}"
    try:
        entries = entries_in(client, read_plain(path, LARGEST).decode())
    except RookeryError as error:
        return [Check(id_, "warning", f"{path}: {error.message}", "mend it: its client may ignore all of it")]
    except (OSError, UnicodeDecodeError) as error:
        return [Check(id_, "warning", f"{path} cannot be read: {error}", "look at it")]
    found = [(name, *_seen(name, entry)) for name, entry in entries.items()]
    ours = [(name, url, command) for name, url, command in found if url or command]
    rows: list[Check] = []
    for name, url, command in ours:
        told = f"{name} in {path}"
        if command and shutil.which(command, path=environment.get("PATH")) is None:
            rows.append(Check(id_, "warning", f"{told} runs {command}, which is not there", again))
        elif url and (wrong := ports.wrong(url)):
            rows.append(Check(id_, "warning", f"{told} {wrong}", again))
        elif url and client.id != "vscode" and not environment.get(TOKEN):
            remedy = f"set it where {client.title} is started: rookery client print {client.id}"
            rows.append(Check(id_, "warning", f"{told} needs {TOKEN}, which is not set here", remedy))
        else:
            rows.append(Check(id_, "ok", f"{told} ({'the bridge' if command else url})"))
    return rows


def _seen(name: str, entry: Any) -> tuple[str, str]:
    """The address, or the program, by which an entry leads to Rookery; two empty texts for one that does not."""
    if not isinstance(entry, dict):
        return "", ""
    given = cast("dict[str, Any]", entry)
    words: Any = given.get("command")
    all_words = cast("list[Any]", words) if isinstance(words, list) else [words, *(given.get("args") or ())]
    command = [str(one) for one in all_words]
    if command and PurePath(command[0]).name == "rookery" and command[1:2] == ["bridge"]:
        return "", command[0]
    url = str(given.get("url") or given.get("serverUrl") or "")
    ours = TOKEN in str(given) or name == "rookery"
    return (url, "") if ours and urlsplit(url).hostname in ("127.0.0.1", "localhost") else ("", "")
