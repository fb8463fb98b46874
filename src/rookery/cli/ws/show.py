"""`rookery ws show`, `path`, `open`, `close` and `token`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.failure import Failure
from rookery.cli.visible import visible
from rookery.cli.ws_agent import agent_of
from rookery.cli.ws_list import changes, state_of
from rookery.cli.ws_names import NAME, Known, Record, common


@click.command(epilog="\b\nExamples:\n  rookery ws show\n  rookery ws show fix-login --json\n")
@NAME
@common
def show(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Show one workspace.

    Its place, branch and state, what has changed in it, its MCP server, its ports and its metadata.
    """
    known = Known(no_start, project)
    one = known.one(name)
    data = known.ask_of(one)
    if as_json:
        output.answer_json(data)
        return
    there = one["state"] not in ("missing", "deleting")
    environment: dict[str, str] = json.loads(known.ask_of(one, "environment")) if there else {}
    output.answer(details(json.loads(data), environment))


@click.command(epilog='\b\nExamples:\n  cd "$(rookery ws path fix-login)"\n  cd "$(rookery ws path @main)"\n')
@NAME
@common
def path(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Print the path of a workspace."""
    one = Known(no_start, project).one(name)
    if one["state"] == "missing":
        raise Failure("workspace-not-found", f"{one['name']} is missing: {one['error']}", "bring its folder back")
    # No shell could go to a path that was made visible.
    output.answer(json.dumps({"path": one["path"]}) if as_json else output.foreign(one["path"]))


@click.command("open", epilog="\b\nExamples:\n  rookery ws open fix-login\n")
@NAME
@common
def open_(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Open a workspace: its agent and its MCP server may run."""
    _turn("open", name, Known(no_start, project), as_json)


@click.command(epilog="\b\nExamples:\n  rookery ws close fix-login\n")
@NAME
@common
def close(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Close a workspace: what runs in it is stopped, and its files stay."""
    _turn("close", name, Known(no_start, project), as_json)


@click.command(epilog='\b\nExamples:\n  export ROOKERY_TOKEN="$(rookery ws token fix-login)"\n')
@NAME
@common
def token(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Print the token that opens a workspace and no other.

    A client that has it reaches the MCP server of this workspace, and nothing else of Rookery.
    """
    known = Known(no_start, project)
    data = known.ask_of(known.one(name), "token")
    if as_json:
        output.answer_json(data)
    else:
        output.answer(json.loads(data)["token"])


def _turn(verb: str, name: str | None, known: Known, as_json: bool) -> None:
    one = known.one(name)
    data = known.ask_of(one, verb, method="POST")
    if as_json:
        output.answer_json(data)
    else:
        output.answer(f"{visible(one['name'])} is {'open' if verb == 'open' else 'closed'}")
        if verb == "open":
            output.narrate(f"its MCP server: {_mcp(json.loads(data))}")


def details(one: Record, environment: dict[str, str]) -> str:
    status: dict[str, Any] | None = one.get("status")
    told = [
        ("project", one["project"]),
        ("path", one["path"]),
        ("branch", one["branch"] or "(detached)"),
        ("state", state_of(one)),
        ("error", one["error"] or ""),
        ("changes", (changes(status) or "none") if status else ""),
        ("conflicts", ", ".join(status.get("conflicts", ())) if status else ""),
        ("agent", _agent(one)),
        ("mcp", _mcp(one)),
        ("ports", environment.get("ROOKERY_PORTS", "")),
    ]
    lines = [output.paint(visible(one["name"]), "bold")]
    lines += [f"  {head:<9}  {visible(text)}" for head, text in told if text]
    lines += [output.paint(f"  needs you: {visible(each['text'])}", "yellow") for each in one.get("attention", ())]
    if one.get("metadata"):
        lines += ["  metadata", *(f"    {key}: {visible(value)}" for key, value in one["metadata"].items())]
    return "\n".join(lines)


def _agent(one: Record) -> str:
    agent = one["agent"]
    where = f"port {agent['port']}" if agent["port"] is not None else agent.get("detail") or ""
    return ", ".join(filter(None, [agent_of(one) or "none", where]))


def _mcp(one: Record) -> str:
    mcp = one["mcp"]
    clients = mcp["connected_clients"]
    told = [mcp["url"] or "", f"{clients} client{'s' * (clients != 1)}" if clients else "", mcp["last_error"] or ""]
    return ", ".join(filter(None, told))
