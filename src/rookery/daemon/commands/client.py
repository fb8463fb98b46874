"""`rookery client`: what a client needs to reach Rookery, shown or written into its file."""

import json
import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.cli import link, output
from rookery.cli.failure import Failure, report
from rookery.cli.ws_names import Known
from rookery.clients.editing import snippet
from rookery.clients.entries import TOKEN, Entry, Target, entry_of
from rookery.clients.install import install
from rookery.clients.known import CLIENTS, Client, Scope, Transport, file_of
from rookery.daemon import layers
from rookery.system import places
from rookery.system.errors import RookeryError

# The strictest of what the clients allow.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_HOME = "ROOKERY_HOME"


@dataclass(frozen=True)
class ClientOptions:
    client: str
    name: str
    workspace: str | None
    project: str | None
    transport: Transport | None
    mode: str | None
    scope: Scope
    write: bool
    show_file: bool
    as_json: bool
    start: bool


def run_client(options: ClientOptions) -> int:
    try:
        _run(options)
    except RookeryError as error:
        return report(Failure(error.code, error.message, error.remedy))
    except Failure as failure:
        return report(failure)
    return 0


def _run(options: ClientOptions) -> None:
    client = CLIENTS[options.client]
    if not _NAME.fullmatch(options.name):
        wrong = f"{options.name!r} cannot be the name of a server: letters, digits, - and _, a letter first"
        raise Failure("invalid-input", wrong, "choose another --name")
    workspace = Known(not options.start, options.project).one(options.workspace) if options.workspace else None
    path = _file(client, options, workspace)
    transport = options.transport or client.default
    if transport not in client.transports:
        entry_of(client, transport, Target(options.name, "", _command()))  # says why
    entry = entry_of(client, transport, _target(options, transport, workspace))
    text = snippet(client, options.name, entry)
    told: dict[str, Any] = {"client": client.id, "transport": transport, "file": str(path), "name": options.name}
    told |= {"entry": entry.value, "snippet": text}
    if options.write:
        done = install(client, path, options.name, entry)
        told |= {"change": done.change, "backup": str(done.backup) if done.backup else None}
    if options.as_json:
        output.answer(json.dumps(told))
        return
    if options.write:
        output.answer(_done(told))
    elif options.show_file:
        output.answer(f"{path}\n\n{text}")
    else:
        output.answer(text)
        output.narrate(f"this goes into {path}")
    for line in _next(client, entry, told, _token(workspace)):
        output.narrate(line)


def _file(client: Client, options: ClientOptions, workspace: dict[str, Any] | None) -> Path:
    folder: Path | None = None
    if options.scope == "project":
        folder = Path(workspace["path"]) if workspace else layers.checkout_of(Path.cwd())
        if folder is None:
            raise Failure("project-not-found", "the current folder is in no git repository", "leave --scope out")
    path = file_of(client, folder, os.environ)
    if path is None:
        raise Failure("invalid-input", f"{client.title} has no file for a single project", "leave --scope out")
    if folder is not None and not path.resolve().is_relative_to(folder.resolve()):
        # The repository may be anybody's, and what it points at is its user's.
        raise Failure("path-outside-root", f"{path} is a link that leads out of the project", "remove it first")
    return path


def _target(options: ClientOptions, transport: Transport, workspace: dict[str, Any] | None) -> Target:
    words = ["bridge"]
    if workspace is not None:
        words += ["--workspace", f"{workspace['project']}/{workspace['name']}"]
    words += ["--mode", options.mode] if options.mode is not None else []
    # A client that is no child of this shell does not know which state folder is meant.
    home = {_HOME: str(places.state_folder())} if os.environ.get(_HOME) else {}
    url, command = "", [*_command(), *words]
    if transport == "http" and workspace is not None:
        url = _own_url(workspace)
    elif transport == "http":
        url = json.loads(link.call("GET", "/api/status", start=options.start))["daemon"]["mcp_url"]
    return Target(options.name, url if options.mode is None else f"{url}?mode={options.mode}", command, home)


def _own_url(workspace: dict[str, Any]) -> str:
    """That of the port which the workspace keeps."""
    mcp, name = workspace["mcp"], f"{workspace['project']}/{workspace['name']}"
    if mcp["url"] is None and not workspace["open"]:
        wrong = f"{workspace['name']} is closed, and its MCP server with it"
        raise Failure("invalid-input", wrong, f"open it first: rookery ws open {name}; or use --transport bridge")
    if mcp["url"] is None:
        wrong = f"the MCP server of {workspace['name']} does not run: {mcp['last_error']}"
        again = f"then close and open it: rookery ws close {name} && rookery ws open {name}"
        raise Failure("invalid-input", wrong, f"{again}; or use --transport bridge")
    return mcp["url"]


def _token(workspace: dict[str, Any] | None) -> str:
    """How a shell gets the token: the owner's, or that of the workspace, which opens nothing else."""
    if workspace is None:
        return f"cat {shlex.quote(str(places.token_file(places.state_folder())))}"
    home = f"{_HOME}={shlex.quote(str(places.state_folder()))} " if os.environ.get(_HOME) else ""
    words = ["rookery"] if shutil.which("rookery") else _command()
    return home + shlex.join([*words, "ws", "token", f"{workspace['project']}/{workspace['name']}"])


def _command() -> list[str]:
    """Ourselves, by a path that needs no PATH: programs with a window seldom have the shell's."""
    beside = Path(sys.executable).with_name("rookery")
    found = str(beside) if beside.exists() else shutil.which("rookery")
    return [found] if found else [sys.executable, "-P", "-c", "from rookery.cli.main import main; main()"]


def _done(told: dict[str, Any]) -> str:
    words = {"made": "written, a new file", "changed": "written", "unchanged": "there already"}
    return f"{told['name']} is {words[told['change']]}: {told['file']}"


def _next(client: Client, entry: Entry, told: dict[str, Any], token: str) -> list[str]:
    lines: list[str] = []
    if told.get("backup") and told["change"] == "changed":
        lines.append(f"as it was before: {told['backup']}")
    if entry.inputs:
        lines.append(f"{client.title} asks for the token once; this prints it: {token}")
    elif told["transport"] == "http":
        lines.append(f'set {TOKEN} where {client.title} is started: export {TOKEN}="$({token})"')
    return [*lines, *([client.after] if "change" in told else [])]
