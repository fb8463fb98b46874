"""What the doctor says of the files in which clients keep Rookery."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, cast
from urllib.parse import urlsplit

from rookery.cli import link
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


def client_checks(port: int | None, environment: Mapping[str, str] = os.environ) -> list[Check]:
    """One row for each client whose file has Rookery in it; `port` is that of the running daemon, if one runs."""
    rows: list[Check] = []
    for client in CLIENTS.values():
        path = file_of(client, None, environment)
        if path is not None and path.exists():
            rows += _of(client, path, port, environment)
    return rows


def _of(client: Client, path: Path, port: int | None, environment: Mapping[str, str]) -> list[Check]:
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
        elif url and port is not None and urlsplit(url).port != port:
            rows.append(Check(id_, "warning", f"{told} leads to {url}, and the daemon is at port {port}", again))
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
