"""`rookery mcp`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.mcp_add import add, add_json
from rookery.cli.mcp_call import call
from rookery.cli.mcp_check import check, costs
from rookery.cli.mcp_login import login, logout
from rookery.cli.mcp_show import details, listing, steps, tools_table
from rookery.cli.mcp_where import Where, broken, common
from rookery.cli.visible import visible
from rookery.cli.waiting import waiting

EPILOG = """\b
Examples:
  rookery mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  rookery mcp list
  rookery mcp tools files
  rookery mcp call files list_directory path=~/notes
"""


@click.group(epilog=EPILOG)
def mcp() -> None:
    """The MCP servers behind Rookery, of this checkout or of everywhere."""


for command in (add, add_json):
    mcp.add_command(command)


@mcp.command("list", epilog="\b\nExamples:\n  rookery mcp list\n  rookery mcp list --all --json\n")
@click.option("--all", "all_", is_flag=True, help="Also those that another one of the same name stands before.")
@common
def list_(all_: bool, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """List the servers and how they are."""
    where = Where(everywhere, no_start)
    data = where.ask("GET", "/api/mcp")
    if as_json:
        output.answer_json(data)
        return
    records: list[dict[str, Any]] = list(json.loads(data).values())
    output.answer(listing(records, where.workspace, with_shadows=all_) or "no servers yet: rookery mcp add")
    if where.checkout and not where.found:
        output.narrate("this checkout is no project, so that its own servers are not here: rookery project add")


@mcp.command(epilog="\b\nExamples:\n  rookery mcp get github\n  rookery mcp get github --json\n")
@click.argument("name")
@common
def get(name: str, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Show one server.

    Its definition, without secrets, and how it is.
    """
    where = Where(everywhere, no_start)
    found = where.ask_of(name, method="GET")
    output.answer(json.dumps(found) if as_json else details(found, where.workspace))


@mcp.command(epilog="\b\nExamples:\n  rookery mcp remove github\n")
@click.argument("name")
@common
def remove(name: str, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Take a server out of its file, and stop it.

    The comments in the file stay.
    """
    done = Where(everywhere, no_start).ask_of(name, method="DELETE")
    output.answer(json.dumps(done) if as_json else f"removed {visible(name)} ({visible(done['source'])})")


def _switch(verb: str, name: str, tool: str | None, level: str | None, where: Where, as_json: bool) -> None:
    asked = {key: value for key, value in (("tool", tool), ("level", level)) if value is not None}
    record = where.ask_of(name, verb, body=asked)
    what = f"{name}/{tool}" if tool else name
    level = level or ("workspace" if where.workspace else "app")
    whom = "everywhere" if level == "app" else f"in this {level}"
    output.answer(json.dumps(record) if as_json else f"{verb}d {visible(what)} {whom}")


_TOOL = click.option("--tool", metavar="PATTERN", help="Only those of its tools that match, such as 'delete_*'.")
_LEVEL = click.option(
    "--level",
    type=click.Choice(["app", "project", "workspace"]),
    help="For whom: the workspace by default, or everybody where there is none.",
)


@mcp.command(epilog="\b\nExamples:\n  rookery mcp enable github\n  rookery mcp enable github --tool 'get_*'\n")
@click.argument("name")
@_TOOL
@_LEVEL
@common
def enable(name: str, tool: str | None, level: str | None, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Switch a server on, or some of its tools; kept over restarts."""
    _switch("enable", name, tool, level, Where(everywhere, no_start), as_json)


@mcp.command(epilog="\b\nExamples:\n  rookery mcp disable github\n  rookery mcp disable github --tool 'delete_*'\n")
@click.argument("name")
@_TOOL
@_LEVEL
@common
def disable(name: str, tool: str | None, level: str | None, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Switch a server off, or some of its tools; kept over restarts."""
    _switch("disable", name, tool, level, Where(everywhere, no_start), as_json)


@mcp.command(epilog="\b\nExamples:\n  rookery mcp connect github\n")
@click.argument("name")
@common
def connect(name: str, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Connect a server now, whatever failed before."""
    where = Where(everywhere, no_start)
    with waiting(f"connecting {name}", at_once=True):
        record = where.ask_of(name, "connect")
    if failure := broken(record):
        raise failure
    told = f"{visible(name)} is {record['status']} ({record['era']}), {record['tools']} tools"
    output.answer(json.dumps(record) if as_json else told)


@mcp.command(epilog="\b\nExamples:\n  rookery mcp disconnect github\n")
@click.argument("name")
@common
def disconnect(name: str, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Stop a server until it is connected again."""
    record = Where(everywhere, no_start).ask_of(name, "disconnect")
    output.answer(json.dumps(record) if as_json else f"{visible(name)} is {record['status']}")


@mcp.command(epilog="\b\nExamples:\n  rookery mcp debug github\n  rookery mcp debug github --json | jq .steps\n")
@click.argument("name")
@common
def debug(name: str, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Try a server, and tell each step and how long it took.

    One that runs already is left alone: this is another one beside it. Exits with 1 if it does not connect.
    """
    where = Where(everywhere, no_start)
    with waiting(f"trying {name}", at_once=True):
        found = where.ask_of(name, "debug")
    output.answer(json.dumps(found) if as_json else steps(found))
    if not found["connected"] and (failure := broken({"name": name, "status": "failed", "error": found["error"]})):
        failure.remedy = found["remedy"] or "the steps above tell where"
        raise failure


@mcp.command(epilog="\b\nExamples:\n  rookery mcp tools\n  rookery mcp tools github --json | jq '.[].name'\n")
@click.argument("name", required=False)
@common
def tools(name: str | None, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """List the tools of servers, and what each costs.

    Of all servers, or of NAME. Starts the servers that are not running. The number is what a model has to read, and an
    estimate: a token for every four bytes. In search mode clients read two tools instead, which find and call all
    others.
    """
    where = Where(everywhere, no_start)
    with waiting(f"asking {name or 'the servers'} for tools", silent=as_json):
        data = where.ask("GET", "/api/tools", **({"server": name} if name else {}))
    if as_json:
        output.answer_json(data)
    else:
        table = tools_table(json.loads(data))
        told = f"\n\n{costs(json.loads(where.ask('GET', '/api/costs')))}" if table and name is None else ""
        output.answer(f"{table}{told}" or "no tools")
    if name is None:
        for record in json.loads(where.ask("GET", "/api/mcp")).values():
            if record["status"] != "disabled" and (failure := broken(record)):
                output.narrate(f"{visible(failure.message)} ({visible(failure.remedy)})")


for command in (call, check, login, logout):
    mcp.add_command(command)
