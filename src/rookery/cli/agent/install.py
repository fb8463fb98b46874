"""`rookery agent install` and `rookery agent login`."""

import json
import os
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.agent_telling import PATIENT, telling
from rookery.cli.failure import Failure
from rookery.cli.visible import visible
from rookery.cli.ws_names import Known

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
@click.option("--force", is_flag=True, help="Bring it anew, even if it is here.")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
def install(force: bool, as_json: bool, no_start: bool) -> None:
    """Bring the OpenCode that agents run, if it is not here.

    It comes from npm with the ripgrep that it needs, into the state folder, at the version that the setting
    agents.version pins. The first agent does the same by itself. With agents.version = "path" those on PATH are used,
    and this only checks them.
    """
    data = _installed(Known(no_start, seconds=PATIENT), force=force, silent=as_json)
    if as_json:
        output.answer_json(data)
        return
    told: dict[str, Any] = json.loads(data)
    output.answer(f"OpenCode {visible(told['version'])} at {visible(told['opencode'])}")
    if told["ripgrep"] is None:
        output.narrate("without ripgrep agents cannot search: install it")


@click.command(epilog=_LOGIN)
@click.argument("provider", required=False)
@click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
def login(provider: str | None, no_start: bool) -> None:
    """Sign in to a model provider, for all agents.

    This is `opencode auth login`, with the OpenCode that agents run. It asks for what PROVIDER does not tell, and
    keeps the login where every OpenCode of yours finds it.
    """
    if not sys.stdin.isatty():
        raise click.UsageError("this asks questions: run it in a terminal")
    from rookery.system.errors import RookeryError
    from rookery.system.foreground import run_in_foreground

    opencode: str = json.loads(_installed(Known(no_start, seconds=PATIENT)))["opencode"]
    words = ["--provider", provider] if provider else []
    output.narrate("OpenCode asks ...")  # which may take seconds
    try:
        code = run_in_foreground([opencode, "auth", "login", *words], os.environ["HOME"], os.environ)
    except RookeryError as error:
        raise Failure(error.code, error.message, "bring it anew: rookery agent install --force") from None
    if code == 0:
        output.narrate("agents that run already learn of it when they are restarted: rookery agent restart")
    sys.exit(code)


def _installed(known: Known, *, force: bool = False, silent: bool = False) -> bytes:
    with telling(known, silent=silent):
        return known.ask("POST", "/api/agents/install", {"force": force})
