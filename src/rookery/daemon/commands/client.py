"""`rookery client`: print a client's config for Rookery, or write it into its file."""

import json
import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.cli import output
from rookery.cli.ws.common import WorkspaceClient
from rookery.clients.edit import render_snippet
from rookery.clients.entry import TOKEN_VARIABLE, Entry, EntryTarget, make_entry
from rookery.clients.install import install
from rookery.clients.registry import CLIENTS, Client, Scope, Transport, config_path
from rookery.daemon.settings import layers
from rookery.daemon_client import connection
from rookery.daemon_client.failure import Failure, report_failure
from rookery.system.errors import RookeryError
from rookery.system.fs import paths
from rookery.system.process.leftovers import require_user

# The strictest of the rules of all clients.
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
        return report_failure(Failure(error.code, error.message, error.remedy))
    except Failure as failure:
        return report_failure(failure)
    return 0


def _run(options: ClientOptions) -> None:
    client = CLIENTS[options.client]
    if options.write:
        require_user(paths.state_folder(), "changing the configs of clients", in_home=True)
    if not _NAME.fullmatch(options.name):
        problem = f"{options.name!r} is not a valid server name: use letters, digits, - and _, starting with a letter"
        raise Failure("invalid-input", problem, "choose another --name")
    workspace = (
        WorkspaceClient(not options.start, options.project).find(options.workspace) if options.workspace else None
    )
    path = _config_file(client, options, workspace)
    transport = options.transport or client.default
    if transport not in client.transports:
        make_entry(client, transport, EntryTarget(options.name, "", _rookery_command()))  # raises the reason
    entry = make_entry(client, transport, _target(options, transport, workspace))
    text = render_snippet(client, options.name, entry)
    result: dict[str, Any] = {"client": client.id, "transport": transport, "file": str(path), "name": options.name}
    result |= {"entry": entry.value, "snippet": text}
    if options.write:
        change = install(client, path, options.name, entry)
        result |= {"change": change.change, "backup": str(change.backup) if change.backup else None}
    if options.as_json:
        output.write(json.dumps(result))
        return
    if options.write:
        output.write(_format_result(result))
    elif options.show_file:
        output.write(f"{path}\n\n{text}")
    else:
        output.write(text)
        output.write_note(f"this goes into {path}")
    for line in _list_next_steps(client, entry, result, _token_command(workspace)):
        output.write_note(line)


def _config_file(client: Client, options: ClientOptions, workspace: dict[str, Any] | None) -> Path:
    folder: Path | None = None
    if options.scope == "project":
        folder = Path(workspace["path"]) if workspace else layers.find_checkout(Path.cwd())
        if folder is None:
            raise Failure("project-not-found", "the current folder is in no git repository", "leave --scope out")
    path = config_path(client, folder, os.environ)
    if path is None:
        raise Failure("invalid-input", f"{client.title} has no file for a single project", "leave --scope out")
    if folder is not None and not path.resolve().is_relative_to(folder.resolve()):
        # The repository may be untrusted, and the link's target belongs to the user.
        raise Failure(
            "path-outside-root", f"{path} is a symbolic link to a path outside the project", "remove it first"
        )
    return path


def _target(options: ClientOptions, transport: Transport, workspace: dict[str, Any] | None) -> EntryTarget:
    words = ["bridge"]
    if workspace is not None:
        words += ["--workspace", f"{workspace['project']}/{workspace['name']}"]
    words += ["--mode", options.mode] if options.mode is not None else []
    # A client that is no child of this shell does not know which state folder is meant.
    home = {_HOME: str(paths.state_folder())} if os.environ.get(_HOME) else {}
    url = ""
    command = [*_rookery_command(), *words]
    if transport == "http" and workspace is not None:
        url = _workspace_url(workspace)
    elif transport == "http":
        url = json.loads(connection.call("GET", "/api/status", start=options.start))["daemon"]["mcp_url"]
    return EntryTarget(options.name, url if options.mode is None else f"{url}?mode={options.mode}", command, home)


def _workspace_url(workspace: dict[str, Any]) -> str:
    """Return the URL of the port that the workspace keeps."""
    mcp = workspace["mcp"]
    name = f"{workspace['project']}/{workspace['name']}"
    if mcp["url"] is None and not workspace["open"]:
        problem = f"the workspace {workspace['name']} is closed, so its MCP server is not running"
        raise Failure("invalid-input", problem, f"open it first: rookery ws open {name}; or use --transport bridge")
    if mcp["url"] is None:
        problem = f"the MCP server of {workspace['name']} is not running: {mcp['last_error']}"
        remedy = f"fix the cause, then reopen it: rookery ws close {name} && rookery ws open {name}"
        raise Failure("invalid-input", problem, f"{remedy}; or use --transport bridge")
    return mcp["url"]


def _token_command(workspace: dict[str, Any] | None) -> str:
    """Return a shell command that prints the token: the owner's, or the workspace's, which is valid only there."""
    if workspace is None:
        return f"cat {shlex.quote(str(paths.token_file(paths.state_folder())))}"
    home = f"{_HOME}={shlex.quote(str(paths.state_folder()))} " if os.environ.get(_HOME) else ""
    words = ["rookery"] if shutil.which("rookery") else _rookery_command()
    return home + shlex.join([*words, "ws", "token", f"{workspace['project']}/{workspace['name']}"])


def _rookery_command() -> list[str]:
    """Return the command for Rookery by a path that needs no PATH: desktop programs seldom have the shell's."""
    sibling = Path(sys.executable).with_name("rookery")
    path = str(sibling) if sibling.exists() else shutil.which("rookery")
    return [path] if path else [sys.executable, "-P", "-c", "from rookery.cli.main import main; main()"]


def _format_result(result: dict[str, Any]) -> str:
    words = {"made": "written to a new file", "changed": "written", "unchanged": "already present"}
    return f"{result['name']} is {words[result['change']]}: {result['file']}"


def _list_next_steps(client: Client, entry: Entry, result: dict[str, Any], token: str) -> list[str]:
    lines: list[str] = []
    if result.get("backup") and result["change"] == "changed":
        lines.append(f"backup of the previous file: {result['backup']}")
    if entry.inputs:
        lines.append(f"{client.title} asks for the token once; this prints it: {token}")
    elif result["transport"] == "http":
        lines.append(f'set {TOKEN_VARIABLE} where {client.title} is started: export {TOKEN_VARIABLE}="$({token})"')
    return [*lines, *([client.next_step] if "change" in result else [])]
