"""`rookery mcp add` and `rookery mcp add-json`."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rookery.cli import output
from rookery.cli.failure import Failure
from rookery.cli.mcp_asking import ask_name, ask_server, pairs, wrong_name, wrong_url
from rookery.cli.mcp_where import Where, broken, common
from rookery.cli.visible import visible
from rookery.cli.waiting import waiting

F = TypeVar("F", bound=Callable[..., Any])

ADD_EPILOG = """\b
Examples:
  rookery mcp add                                        asks for all it needs
  rookery mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  rookery mcp add docs --url https://example.com/mcp --header 'Authorization=Bearer {env:DOCS_TOKEN}'
  rookery mcp add files --scope project --client opencode -- npx -y @modelcontextprotocol/server-filesystem .

A secret is best left in a variable: {env:NAME} is filled in when the server is started, and never shown.
"""
JSON_EPILOG = """\b
Examples:
  rookery mcp add-json files '{"command": ["npx", "-y", "@modelcontextprotocol/server-filesystem", "."]}'
  rookery mcp add-json docs - < docs.json
"""


class _Add(click.Command):
    """Says what to do about the options of a server's own command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            told = f"{error.format_message()} If it is for the server's own command, put -- before that command."
            raise click.UsageError(told, ctx) from None


def _target(command: F) -> F:
    """The options that choose the file, and what is done after writing it."""
    for option in (
        click.option("--no-check", is_flag=True, help="Do not try to connect."),
        click.option("--force", is_flag=True, help="Replace a server of this name in the file."),
        click.option("--file", type=click.Path(dir_okay=False), help="The file to write to, whatever it is for."),
        click.option(
            "--client",
            type=click.Choice(["rookery", "opencode", "claude"]),
            default="rookery",
            help="Whose file: Rookery's mcp.json by default, opencode.json, or .mcp.json.",
        ),
        click.option(
            "--scope",
            type=click.Choice(["user", "project"]),
            default="user",
            help="Your own file, for all projects (the default), or this project's, which needs approval.",
        ),
    ):
        command = option(command)
    return command


@click.command(cls=_Add, epilog=ADD_EPILOG)
@click.argument("name", required=False)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", help="The address of a remote server.")
@click.option("--header", multiple=True, metavar="NAME=VALUE", help="Sent to a remote server; may be repeated.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable of a local server; may be repeated.")
@click.option("--transport", type=click.Choice(["http", "sse"]), help="How to reach it; left out, it is found out.")
@_target
@common
def add(
    name: str | None,
    command: tuple[str, ...],
    url: str | None,
    header: tuple[str, ...],
    env: tuple[str, ...],
    transport: str | None,
    **chosen: Any,
) -> None:
    """Add a server, local or remote.

    That is a COMMAND to run, or the --url of one that runs elsewhere. Asks for what is left out, if it is run on a
    terminal. The server is written to a file, comments kept, and then connected, to see whether that works. If it does
    not, the exit code is 1, and the entry stays in the file.
    """
    if command and url:
        raise click.UsageError("a server is either local, with a command, or remote, with --url")
    if not name or not (command or url):
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise click.UsageError(
                "give a NAME, and a command behind -- or a --url; without a terminal nobody is asked"
            )
        name = name or ask_name()
        if not (command or url):
            command, url = ask_server()
    if why := wrong_name(name):
        raise click.BadParameter(why, param_hint="NAME")
    if url is not None:
        if why := wrong_url(url):
            raise click.BadParameter(why, param_hint="--url")
        if env:
            raise click.UsageError("--env is for local servers; a remote one takes --header")
        config: dict[str, Any] = {"url": url, **({"type": transport} if transport else {})}
        config |= {"headers": pairs(header, "--header", "=:")} if header else {}
    else:
        if header or transport:
            raise click.UsageError("--header and --transport are for remote servers; a local one takes --env")
        config = {"command": list(command), **({"environment": pairs(env, "--env", "=")} if env else {})}
    _write(name, config, **chosen)


@click.command("add-json", epilog=JSON_EPILOG)
@click.argument("name")
@click.argument("text", metavar="JSON")
@_target
@common
def add_json(name: str, text: str, **chosen: Any) -> None:
    """Add a server from its JSON entry, in the shape of any client.

    With - the entry is read from stdin.
    """
    try:
        config = json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as error:
        raise click.BadParameter(f"this is no JSON: {error}", param_hint="JSON") from None
    if not isinstance(config, dict):
        raise click.BadParameter("the entry of a server is an object", param_hint="JSON")
    if why := wrong_name(name):
        raise click.BadParameter(why, param_hint="NAME")
    _write(name, config, **chosen)  # pyright: ignore[reportUnknownArgumentType]


def _write(
    name: str,
    config: dict[str, Any],
    *,
    scope: str,
    client: str,
    file: str | None,
    force: bool,
    no_check: bool,
    everywhere: bool,
    as_json: bool,
    no_start: bool,
) -> None:
    where = Where(everywhere, no_start)
    if scope == "project" and not file and where.workspace is None:
        raise Failure("project-not-found", "this folder is in no project of Rookery", "rookery project add PATH")
    body: dict[str, Any] = {"config": config, "place": scope, "client": client, "force": force}
    if file:
        body["file"] = os.path.abspath(file)  # noqa: PTH100 - pathlib costs as much as click
    told = where.ask_of(name, method="PUT", body=body)
    if not as_json:
        output.answer(f"added {visible(name)} to {visible(told['file'])}")
    failure = None if no_check else _check(where, name, told)
    if as_json:
        output.answer(json.dumps(told))
    if failure is not None:
        failure.remedy = f"it stays in the file; {failure.remedy}"
        raise failure


def _check(where: Where, name: str, told: dict[str, Any]) -> Failure | None:
    """Connect what was written, and tell how that went; or why it is not tried."""
    record = told["record"]
    if record is None or record["source"].rpartition(":")[0] != told["file"]:
        why = "Rookery does not read this file here" if record is None else f"{record['source']} stands before it"
        output.narrate(f"not tried: {visible(why)}")
        return None
    if record["status"] in ("needs_approval", "disabled"):
        failure = broken(record)
        output.narrate(f"not tried: {visible(failure.message)} ({visible(failure.remedy)})" if failure else "")
        return None
    with waiting(f"connecting {name}", at_once=True):
        record = told["record"] = where.ask_of(name, "connect")
    if failure := broken(record):
        return failure
    output.narrate(f"connected: it speaks {record['era']} and offers {record['tools']} tools")
    return None
