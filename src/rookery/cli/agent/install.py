"""`rookery agent install` and `rookery agent login`."""

import json
import os
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.agent.progress import START_SECONDS, show_agent_progress
from rookery.cli.options import json_option, no_start_option
from rookery.cli.output import visible
from rookery.cli.ws.common import WorkspaceClient
from rookery.daemon_client.failure import Failure

_INSTALL = """\b
Examples:
  rookery agent install
  rookery config set agents.version path     use the opencode on PATH instead
"""
_LOGIN = """\b
Examples:
  rookery agent login
  rookery agent login anthropic
"""


@click.command(epilog=_INSTALL)
@click.option("--force", is_flag=True, help="Reinstall it even if it is present.")
@json_option
@no_start_option
def install(force: bool, as_json: bool, no_start: bool) -> None:
    """Install the OpenCode that agents run, if it is missing.

    OpenCode and ripgrep are installed from npm into the state folder, at the version that the setting agents.version
    pins. Starting the first agent does the same. With agents.version = "path", agents use the programs on PATH, and
    this command only checks them.
    """
    data = _install(WorkspaceClient(no_start, seconds=START_SECONDS), force=force, silent=as_json)
    if as_json:
        output.write_json(data)
        return
    installed: dict[str, Any] = json.loads(data)
    output.write(f"OpenCode {visible(installed['version'])} at {visible(installed['opencode'])}")
    if installed["ripgrep"] is None:
        output.write_note("agents cannot search without ripgrep: install it")


@click.command(epilog=_LOGIN)
@click.argument("provider", required=False)
@no_start_option
def login(provider: str | None, no_start: bool) -> None:
    """Sign in to a model provider, for all agents.

    This runs `opencode auth login` with the OpenCode that agents run. It asks for the remaining details, and stores
    the login where all your OpenCode installations find it.
    """
    if not sys.stdin.isatty():
        raise click.UsageError("this command asks questions: run it in a terminal")
    from rookery.system.errors import RookeryError
    from rookery.system.process.launch import run_in_foreground

    opencode: str = json.loads(_install(WorkspaceClient(no_start, seconds=START_SECONDS)))["opencode"]
    words = ["--provider", provider] if provider else []
    output.write_note("starting OpenCode's login ...")  # it takes seconds to start
    try:
        code = run_in_foreground([opencode, "auth", "login", *words], os.environ["HOME"], os.environ)
    except RookeryError as error:
        raise Failure(error.code, error.message, "reinstall it: rookery agent install --force") from None
    if code == 0:
        output.write_note("running agents use the new login after a restart: rookery agent restart")
    sys.exit(code)


def _install(client: WorkspaceClient, *, force: bool = False, silent: bool = False) -> bytes:
    with show_agent_progress(client, silent=silent):
        return client.request("POST", "/api/agents/install", {"force": force})
