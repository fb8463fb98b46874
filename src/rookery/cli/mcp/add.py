"""`rookery mcp add` and `rookery mcp add-json`.

Missing values are asked for on the terminal; all values are checked before the daemon gets them.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from rookery.cli import output
from rookery.cli.mcp.common import ServerClient, find_server_failure, server_options
from rookery.cli.output import visible
from rookery.cli.progress import show_progress
from rookery.daemon_client.failure import Failure

F = TypeVar("F", bound=Callable[..., Any])
ADD_EPILOG = """\b
Examples:
  rookery mcp add                                        asks for the details
  rookery mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  rookery mcp add docs --url https://example.com/mcp --header 'Authorization=Bearer {env:DOCS_TOKEN}'
  rookery mcp add files --scope project --client opencode -- npx -y @modelcontextprotocol/server-filesystem .

Keep secrets in variables: {env:NAME} is replaced when the server starts, and is never shown.
"""
JSON_EPILOG = """\b
Examples:
  rookery mcp add-json files '{"command": ["npx", "-y", "@modelcontextprotocol/server-filesystem", "."]}'
  rookery mcp add-json docs - < docs.json
"""


def ask_name() -> str:
    return click.prompt("Name", err=True, value_proc=_make_validator(check_name))


def ask_server() -> tuple[tuple[str, ...], str | None]:
    kinds = click.Choice(["local", "remote"])
    kind = click.prompt("A local program, or a remote server", type=kinds, default="local", err=True)
    if kind == "remote":
        return (), click.prompt("URL", err=True, value_proc=_make_validator(check_url))
    line: str = click.prompt("Command", err=True, value_proc=_make_validator(_check_command))
    # No shell has expanded this line.
    return tuple(os.path.expanduser(word) for word in _split(line)), None  # noqa: PTH111


def _make_validator(check: Callable[[str], str | None]) -> Callable[[str], str]:
    """Return a validator with which a prompt asks again until the value is valid. The check returns the problem."""

    def validate(text: str) -> str:
        if problem := check(text.strip()):
            raise click.UsageError(problem)
        return text.strip()

    return validate


def check_name(name: str) -> str | None:
    """Return the problem with a name, or None. This finds typing errors; the daemon checks more."""
    if not name.strip() or "/" in name or not name.isprintable():
        return 'a name must not be empty, and must not contain "/" or control characters'
    return None


def check_url(url: str) -> str | None:
    """Return the problem with a URL, or None."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_valid = False
    return None if is_valid and " " not in url else "a URL must begin with http:// or https:// and name a host"


def _check_command(line: str) -> str | None:
    try:
        return None if _split(line) else "a command needs at least one word"
    except ValueError as error:
        return f"the command cannot be split into words: {error}"


def _split(line: str) -> list[str]:
    import shlex

    return shlex.split(line)


def parse_pairs(words: Sequence[str], option: str, separators: str) -> dict[str, str]:
    """Return the values of NAME=VALUE options by name. A header may also be written as in HTTP, NAME: VALUE."""
    pairs: dict[str, str] = {}
    for pair in words:
        index = min((pair.find(separator) for separator in separators if separator in pair), default=-1)
        if index < 1:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=option)
        pairs[pair[:index].strip()] = pair[index + 1 :].strip() if ":" in separators else pair[index + 1 :]
    return pairs


class _AddCommand(click.Command):
    """A command that explains what to do about options of a server's own command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            message = (
                f"{error.format_message()} If the option belongs to the server's command, put -- before that command."
            )
            raise click.UsageError(message, ctx) from None


def _target_options(command: F) -> F:
    """Add the options that choose the file, and what is done after writing it."""
    for option in (
        click.option("--no-check", is_flag=True, help="Do not test the connection."),
        click.option("--force", is_flag=True, help="Replace a server of this name in the file."),
        click.option("--file", type=click.Path(dir_okay=False), help="The file to write to."),
        click.option(
            "--client",
            type=click.Choice(["rookery", "opencode", "claude"]),
            default="rookery",
            help="The client whose file is written: mcp.json of Rookery, opencode.json, or .mcp.json.",
        ),
        click.option(
            "--scope",
            type=click.Choice(["user", "project"]),
            default="user",
            help="Write your own file, for all projects, or this project's, which needs approval; default: user.",
        ),
    ):
        command = option(command)
    return command


@click.command(cls=_AddCommand, epilog=ADD_EPILOG)
@click.argument("name", required=False)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", help="The URL of a remote server.")
@click.option("--header", multiple=True, metavar="NAME=VALUE", help="A header for a remote server; may be repeated.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable for a local server; may be repeated.")
@click.option("--transport", type=click.Choice(["http", "sse"]), help="The transport; detected if omitted.")
@_target_options
@server_options
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

    Give a COMMAND to run, or the --url of a server that runs elsewhere. On a terminal, the command asks for missing
    details. It writes the server to a file, keeps the comments in it, and then tests the connection. If that fails,
    the exit code is 1, and the entry stays in the file.
    """
    if command and url:
        raise click.UsageError("COMMAND and --url cannot be combined: a server is either local or remote")
    if not name or not (command or url):
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise click.UsageError(
                "give a NAME, and a command after -- or a --url; the command asks for them only on a terminal"
            )
        name = name or ask_name()
        if not (command or url):
            command, url = ask_server()
    if problem := check_name(name):
        raise click.BadParameter(problem, param_hint="NAME")
    if url is not None:
        if problem := check_url(url):
            raise click.BadParameter(problem, param_hint="--url")
        if env:
            raise click.UsageError("--env is for local servers; use --header for remote servers")
        config: dict[str, Any] = {"url": url, **({"type": transport} if transport else {})}
        config |= {"headers": parse_pairs(header, "--header", "=:")} if header else {}
    else:
        if header or transport:
            raise click.UsageError("--header and --transport are for remote servers; use --env for local servers")
        config = {"command": list(command), **({"environment": parse_pairs(env, "--env", "=")} if env else {})}
    _write_server(name, config, **chosen)


@click.command("add-json", epilog=JSON_EPILOG)
@click.argument("name")
@click.argument("text", metavar="JSON")
@_target_options
@server_options
def add_json(name: str, text: str, **chosen: Any) -> None:
    """Add a server from its JSON entry, in the format of any client.

    With - the entry is read from stdin.
    """
    try:
        config = json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as error:
        raise click.BadParameter(f"the entry is not JSON: {error}", param_hint="JSON") from None
    if not isinstance(config, dict):
        raise click.BadParameter("the entry of a server must be a JSON object", param_hint="JSON")
    if problem := check_name(name):
        raise click.BadParameter(problem, param_hint="NAME")
    _write_server(name, config, **chosen)  # pyright: ignore[reportUnknownArgumentType]


def _write_server(
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
    server_client = ServerClient(everywhere, no_start)
    if scope == "project" and not file and server_client.workspace is None:
        raise Failure("project-not-found", "this folder is not in a project of Rookery", "rookery project add PATH")
    body: dict[str, Any] = {"config": config, "place": scope, "client": client, "force": force}
    if file:
        body["file"] = os.path.abspath(file)  # noqa: PTH100 - pathlib costs as much as click
    result = server_client.request_server(name, method="PUT", body=body)
    if not as_json:
        output.write(f"added {visible(name)} to {visible(result['file'])}")
    failure = None if no_check else _check_server(server_client, name, result)
    if as_json:
        output.write(json.dumps(result))
    if failure is not None:
        failure.remedy = f"the entry stays in the file; {failure.remedy}"
        raise failure


def _check_server(client: ServerClient, name: str, result: dict[str, Any]) -> Failure | None:
    """Connect the new server and report the result, or report why it is not connected. Return the failure, if any."""
    record = result["record"]
    if record is None or record["source"].rpartition(":")[0] != result["file"]:
        reason = "Rookery does not read this file here" if record is None else f"{record['source']} overrides it"
        output.write_note(f"connection not tested: {visible(reason)}")
        return None
    if record["status"] in ("needs_approval", "disabled"):
        failure = find_server_failure(record)
        output.write_note(
            f"connection not tested: {visible(failure.message)} ({visible(failure.remedy)})" if failure else ""
        )
        return None
    with show_progress(f"connecting {name}", at_once=True):
        record = result["record"] = client.request_server(name, "connect")
    if failure := find_server_failure(record):
        return failure
    output.write_note(f"connected ({record['era']}), {record['tools']} tools")
    return None
