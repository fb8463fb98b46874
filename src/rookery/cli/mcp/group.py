"""`rookery mcp`: the group, its commands about one server or all, and their tables.

Control characters in text from a server are made visible before it is printed.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rookery.cli import output
from rookery.cli.groups import SuggestingGroup
from rookery.cli.mcp.add import add, add_json
from rookery.cli.mcp.call import call
from rookery.cli.mcp.check import check, describe_costs
from rookery.cli.mcp.common import ServerClient, find_server_failure, server_options
from rookery.cli.mcp.login import login, logout
from rookery.cli.output import Column, visible
from rookery.cli.progress import show_progress
from rookery.daemon_client.failure import Failure

_STYLES = {"failed": "red", "backoff": "red", "needs_approval": "yellow", "needs_auth": "yellow", "disabled": "dim"}

_HEADS = [
    Column("NAME", output.VITAL, 12),
    Column("STATUS", output.VITAL, 14),
    Column("TOOLS", output.MINOR),
    Column("SCOPE", output.MINOR),
    Column("SOURCE", min_width=12),
    Column("", output.VITAL, 20, wraps=True),
]
_SHOWN_PROBLEMS = 3
_TOOL_HEADS = [Column("TOOL", output.VITAL, 16), Column("TOKENS", output.VITAL), ""]

EPILOG = """\b
Examples:
  rookery mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  rookery mcp list
  rookery mcp tools files
  rookery mcp call files list_directory path=~/notes
"""


def render_servers(records: list[dict[str, Any]], workspace: str | None, *, with_shadows: bool) -> str:
    """Return a table of the servers; with shadows, also of definitions that another one of the same name replaces."""
    rows: list[list[str]] = []
    styles: list[str | None] = []
    for record in records:
        source = shorten_path(record["source"], workspace)
        remark = record["error"] or _summarize_problems(record)
        rows.append([record["name"], record["status"], str(record["tools"]), record["scope"], source, remark])
        styles.append(_STYLES.get(record["status"]))
        for shadow in record["shadows"] if with_shadows else ():
            rows.append([record["name"], "shadowed", "", "", shorten_path(shadow, workspace), ""])
            styles.append("dim")
    return output.format_table(rows, _HEADS, styles)


def _summarize_problems(record: dict[str, Any]) -> str:
    """Return what is withheld, and the first definitions that were repaired or left out; `mcp get` shows all."""
    problems = [*summarize_guard(record), *record["problems"]]
    more = f"; and {len(problems) - _SHOWN_PROBLEMS} more" if len(problems) > _SHOWN_PROBLEMS else ""
    return "; ".join(problems[:_SHOWN_PROBLEMS]) + more


def summarize_guard(record: dict[str, Any]) -> list[str]:
    """Return how much of a server is withheld, and how much the scanner has found in it."""
    withheld = record["withheld"]
    findings = record["findings"]
    name = record["name"]
    texts: list[str] = []
    if withheld:
        texts.append(f"{withheld} withheld: rookery guard diff {shlex.quote(name)}")
    if findings:
        texts.append(f"{findings} finding{'s' if findings > 1 else ''}: rookery guard scan {shlex.quote(name)}")
    return texts


def shorten_path(source: str, workspace: str | None) -> str:
    """Return the path relative to the checkout, or to the home folder as ~, if it lies in one of them."""
    if workspace and source.startswith(workspace + "/"):
        return source[len(workspace) + 1 :]
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111
    return "~" + source[len(home) :] if source.startswith(home + "/") else source


def render_server(server: dict[str, Any], workspace: str | None) -> str:
    definition = server["definition"]
    era = f" ({server['era']})" if server["era"] else ""
    fields = [
        ("status", f"{server['status']}{era}"),
        ("error", server["error"] or ""),
        ("tools", str(server["tools"])),
        ("source", f"{shorten_path(server['source'], workspace)} ({definition['dialect']})"),
        ("before", ", ".join(shorten_path(path, workspace) for path in server["shadows"])),
        ("scope", server["scope"]),
        ("workspace", server["workspace"] or ""),
    ]
    lines = [output.paint(visible(server["name"]), "bold")]
    lines += [f"  {head:<9}  {visible(text)}" for head, text in fields if text]
    definition_lines = json.dumps(definition["written"], indent=2, ensure_ascii=False).split("\n")
    lines += ["  definition", *(f"    {visible(line)}" for line in definition_lines)]
    lines += [f"  guard      {visible(text)}" for text in summarize_guard(server)]
    if server["diagnosis"]:
        lines += ["  diagnosis", *(f"    {visible(line)}" for line in server["diagnosis"])]
    if server["stderr"]:
        lines += ["  stderr", *(f"    {visible(line)}" for line in server["stderr"])]
    return "\n".join(lines)


def render_tools(tools: list[dict[str, Any]]) -> str:
    """Return a part for each server, with the tokens of its tools and their sum."""
    parts: list[str] = []
    for server in dict.fromkeys(tool["server"] for tool in tools):
        own = [tool for tool in tools if tool["server"] == server]
        rows = [[tool["tool"], _tokens(tool), _summarize(tool)] for tool in own]
        styles = [None if tool["shown"] else "dim" for tool in own]
        head = f"{visible(server)}: {_count(own)}"
        _, *body = output.format_table(rows, _TOOL_HEADS, styles, indent=2).split("\n")
        parts.append("\n".join([output.paint(head, "bold"), *(f"  {line}" for line in body)]))
    if len(parts) > 1:
        parts.append(f"total: {_count(tools)}")
    return "\n\n".join(parts)


def _count(tools: list[dict[str, Any]]) -> str:
    listed = [tool for tool in tools if tool["shown"]]
    hidden = len(tools) - len(listed)
    tokens = sum(tool["tokens"] for tool in listed)
    return f"{len(listed)} tools, about {tokens:,} tokens" + (f" ({hidden} hidden)" if hidden else "")


def _tokens(tool: dict[str, Any]) -> str:
    return f"~{tool['tokens']}" if tool["shown"] else "hidden"


def _summarize(tool: dict[str, Any]) -> str:
    """Return the first line of the tool's description, or of its title."""
    text = tool["definition"].get("description") or tool["definition"].get("title") or ""
    return str(text).strip().partition("\n")[0]


def render_steps(report: dict[str, Any]) -> str:
    """Return the steps of an attempt to connect, a line for each, and what the server reported."""
    lines = [output.paint(visible(report["name"]), "bold")]
    for step in report["steps"]:
        mark = output.paint("✓", "green") if step["ok"] else output.paint("✗", "red")
        time = f"{step['at_ms']:>8.1f} ms {'+' + format(step['took_ms'], '.1f'):>8}"
        lines.append(f"{mark} {time}  {visible(step['what'])}  {visible(step['told'])}".rstrip())
    if report["connected"]:
        info = f"{report['info'].get('name', 'no name')} {report['info'].get('version', '')}".strip()
        counts = ", ".join(f"{count} {kind}" for kind, count in report["counts"].items()) or "nothing"
        lines += [
            f"protocol {visible(str(report['era']))}",
            f"server   {visible(info)}",
            f"supports {visible(', '.join(report['capabilities']) or 'nothing')}",
            f"offers   {counts}",
        ]
    lines += [f"problem  {visible(problem)}" for problem in report["problems"]]
    lines += [f"refused  {visible(call)}" for call in report["refused"]]
    if report["stderr"]:
        lines += ["stderr", *(f"  {visible(line)}" for line in report["stderr"])]
    return "\n".join(lines)


Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(cls=SuggestingGroup, epilog=EPILOG)
def mcp() -> None:
    """MCP servers: those of this checkout, or of all projects."""


for command in (add, add_json):
    mcp.add_command(command)


@mcp.command("list", epilog="\b\nExamples:\n  rookery mcp list\n  rookery mcp list --all --json\n")
@click.option("--all", "all_", is_flag=True, help="Include servers that another of the same name overrides.")
@server_options
def list_(all_: bool, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """List the servers and their status."""
    client = ServerClient(everywhere, no_start)
    data = client.request("GET", "/api/mcp")
    if as_json:
        output.write_json(data)
        return
    records: list[dict[str, Any]] = list(json.loads(data).values())
    output.write(render_servers(records, client.workspace, with_shadows=all_) or "no servers yet: rookery mcp add")
    if client.checkout and not client.workspace_record:
        output.write_note("this checkout is not a project, so its own servers are not listed: rookery project add")


@mcp.command(epilog="\b\nExamples:\n  rookery mcp get github\n  rookery mcp get github --json\n")
@click.argument("name")
@server_options
def get(name: str, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Show one server.

    Shows its definition, without secrets, and its status.
    """
    client = ServerClient(everywhere, no_start)
    server = client.request_server(name, method="GET")
    output.write(json.dumps(server) if as_json else render_server(server, client.workspace))


@mcp.command(epilog="\b\nExamples:\n  rookery mcp remove github\n")
@click.argument("name")
@server_options
def remove(name: str, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Remove a server from its file, and stop it.

    The comments in the file are kept.
    """
    removed = ServerClient(everywhere, no_start).request_server(name, method="DELETE")
    output.write(json.dumps(removed) if as_json else f"removed {visible(name)} ({visible(removed['source'])})")


def _set_switch(
    verb: str,
    name: str,
    client: ServerClient,
    as_json: bool,
    *,
    tool: str | None,
    level: str | None,
    session: str | None,
) -> None:
    if level is not None and session is not None:
        raise click.UsageError("--level and --session cannot be combined")
    body = {key: value for key, value in (("tool", tool), ("level", level)) if value is not None}
    record = client.request_server(name, verb, body=body, session=session)
    what = f"{name}/{tool}" if tool else name
    level = level or ("session" if session else "workspace" if client.workspace else "app")
    scope = "everywhere" if level == "app" else f"in this {level}"
    output.write(json.dumps(record) if as_json else f"{verb}d {visible(what)} {scope}")


def _complete_session(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return shell completions: the sessions of agents and of clients. No daemon is started for them."""
    from rookery.daemon_client import connection

    try:
        clients = json.loads(connection.call("GET", "/api/daemon", start=False))["clients"]
        sessions = json.loads(connection.call("GET", "/api/sessions", start=False))
    except Failure:
        return []
    ids = [*(session["id"] for session in sessions), *(client["session"] for client in clients)]
    return [id_ for id_ in ids if id_.startswith(incomplete)]


_SWITCH_OPTIONS = (
    click.option(
        "--session",
        metavar="SESSION",
        shell_complete=_complete_session,
        help="In one conversation of an agent, by the id of its session or the beginning of it. Or for one client, by "
        "its Mcp-Session-Id, until that session ends; `rookery status --json` lists these under `daemon.clients`.",
    ),
    click.option(
        "--level",
        type=click.Choice(["app", "project", "workspace"]),
        help="The scope; default: workspace, or app outside of a workspace.",
    ),
    click.option("--tool", metavar="PATTERN", help="Only the tools that match, such as 'delete_*'."),
    click.argument("name"),
)


def _switch_options(command: Command) -> Command:
    """Add the arguments and options of `enable` and `disable`."""
    for option in _SWITCH_OPTIONS:
        command = option(command)
    return command


_ENABLE = """\b
Examples:
  rookery mcp enable github
  rookery mcp enable github --tool 'get_*'
  rookery mcp enable github --session ses_1a2b      in one conversation of an agent
"""
_DISABLE = """\b
Examples:
  rookery mcp disable github
  rookery mcp disable github --tool 'delete_*'
  rookery mcp disable github --session ses_1a2b     in one conversation of an agent
"""


@mcp.command(epilog=_ENABLE)
@_switch_options
@server_options
def enable(name: str, everywhere: bool, as_json: bool, no_start: bool, **chosen: str | None) -> None:
    """Enable a server, or some of its tools."""
    _set_switch("enable", name, ServerClient(everywhere, no_start), as_json, **chosen)


@mcp.command(epilog=_DISABLE)
@_switch_options
@server_options
def disable(name: str, everywhere: bool, as_json: bool, no_start: bool, **chosen: str | None) -> None:
    """Disable a server, or some of its tools."""
    _set_switch("disable", name, ServerClient(everywhere, no_start), as_json, **chosen)


@mcp.command(epilog="\b\nExamples:\n  rookery mcp connect github\n")
@click.argument("name")
@server_options
def connect(name: str, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Connect a server now, even after a failure."""
    client = ServerClient(everywhere, no_start)
    with show_progress(f"connecting {name}", at_once=True):
        record = client.request_server(name, "connect")
    if failure := find_server_failure(record):
        raise failure
    if record["status"] != "connected":
        message = f'MCP server "{name}" is {record["status"]}: it was stopped while it was connecting'
        raise Failure("server-unavailable", message, f"try again: rookery mcp connect {shlex.quote(name)}")
    text = f"{visible(name)} is {record['status']} ({record['era']}), {record['tools']} tools"
    output.write(json.dumps(record) if as_json else text)


@mcp.command(epilog="\b\nExamples:\n  rookery mcp disconnect github\n")
@click.argument("name")
@server_options
def disconnect(name: str, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Stop a server until you connect it again."""
    record = ServerClient(everywhere, no_start).request_server(name, "disconnect")
    output.write(json.dumps(record) if as_json else f"{visible(name)} is {record['status']}")


@mcp.command(epilog="\b\nExamples:\n  rookery mcp debug github\n  rookery mcp debug github --json | jq .steps\n")
@click.argument("name")
@click.option("--trace", is_flag=True, help="Also show which system calls its sandbox refused; needs strace.")
@server_options
def debug(name: str, trace: bool, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Test a server, and show each step and its duration.

    This starts the server separately, and does not affect one that already runs. Exits with 1 if it does not connect.
    """
    client = ServerClient(everywhere, no_start)
    with show_progress(f"testing {name}", at_once=True):
        report = client.request_server(name, "debug", body={"trace": True} if trace else None)
    output.write(json.dumps(report) if as_json else render_steps(report))
    if not report["connected"] and (
        failure := find_server_failure({"name": name, "status": "failed", "error": report["error"]})
    ):
        failure.remedy = report["remedy"] or "see the steps above"
        raise failure


@mcp.command(epilog="\b\nExamples:\n  rookery mcp tools\n  rookery mcp tools github --json | jq '.[].name'\n")
@click.argument("name", required=False)
@server_options
def tools(name: str | None, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """List the tools of servers, and their cost in tokens.

    Lists the tools of all servers, or of NAME, and starts the servers that are not running. The number of tokens that a
    model has to read is an estimate: one token for every four bytes. In search mode, clients read only two tools, which
    find and call all others.
    """
    client = ServerClient(everywhere, no_start)
    with show_progress(f"listing the tools of {name or 'the servers'}", silent=as_json):
        data = client.request("GET", "/api/tools", server=name)
    if as_json:
        output.write_json(data)
    else:
        table = render_tools(json.loads(data))
        text = (
            f"\n\n{describe_costs(json.loads(client.request('GET', '/api/costs')))}" if table and name is None else ""
        )
        output.write(f"{table}{text}" or "no tools")
    if name is None:
        for record in json.loads(client.request("GET", "/api/mcp")).values():
            if record["status"] != "disabled" and (failure := find_server_failure(record)):
                text = f"{visible(failure.message)} ({visible(failure.remedy)})"
                output.write_note(output.format_labelled("", text, stream=sys.stderr))


for command in (call, check, login, logout):
    mcp.add_command(command)
