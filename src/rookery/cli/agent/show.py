"""`rookery agent list` and `rookery agent show`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.visible import visible
from rookery.cli.ws_agent import doing
from rookery.cli.ws_names import NAME, Known, Record, common

HEADS = ["NAME", "STATE", "DOES", "PORT", "PID", "NEEDS YOU"]
_STYLES = {"failed": "red", "restarting": "yellow", "starting": "cyan", "asleep": "dim", "stopped": "dim"}


@click.command("list", epilog="\b\nExamples:\n  rookery agent list\n  rookery agent list --json | jq '.[].port'\n")
@common
def list_(project: str | None, as_json: bool, no_start: bool) -> None:
    """List the agents of all workspaces."""
    known = Known(no_start, project)
    found = [(one, _agent(known, one)) for one in known.all() if one["state"] not in ("missing", "deleting")]
    if as_json:
        told = [{"project": one["project"], "name": one["name"], **agent} for one, agent in found]
        output.answer_json(json.dumps(told).encode())
    elif found:
        several = len({one["project"] for one, _ in found}) > 1
        rows = [_row(one, agent, several) for one, agent in found]
        styles = ["yellow" if agent["attention"] else _STYLES.get(agent["state"]) for _, agent in found]
        output.answer(output.table(rows, HEADS, styles, fit=True))
    else:
        output.answer("no workspaces yet: rookery ws create NAME")


@click.command(epilog="\b\nExamples:\n  rookery agent show\n  rookery agent show fix-login --json\n")
@NAME
@common
def show(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Show the agent of a workspace, and its sessions.

    Its process, what it was started without, what it needs you for, and what each of its sessions does.
    """
    known = Known(no_start, project)
    one = known.one(name)
    data = known.ask_of(one, "agent")
    if as_json:
        output.answer_json(data)
    else:
        output.answer(details(one["name"], json.loads(data)))


def _agent(known: Known, one: Record) -> dict[str, Any]:
    return json.loads(known.ask_of(one, "agent"))


def _row(one: Record, agent: dict[str, Any], several: bool) -> list[str]:
    told = [
        f"{one['project']}/{one['name']}" if several else one["name"],
        agent["state"],
        doing(agent["status"]),
        str(agent["port"] or ""),
        str(agent["pid"] or ""),
        "; ".join([*_failure(agent), *(need["text"] for need in agent["attention"])]),
    ]
    return [visible(cell) for cell in told]


def _failure(agent: dict[str, Any]) -> list[str]:
    """The rest of an error are the last lines of its log."""
    return [agent["error"].partition("\n")[0]] if agent["error"] else []


def details(name: str, agent: dict[str, Any]) -> str:
    told = [
        ("state", ", ".join(filter(None, [agent["state"], agent["detail"], doing(agent["status"])]))),
        ("port", str(agent["port"] or "")),
        ("pid", str(agent["pid"] or "")),
    ]
    lines = [output.paint(visible(name), "bold")]
    lines += [f"  {head:<5}  {visible(text)}" for head, text in told if text]
    errors = (agent["error"] or "").split("\n")
    lines += [output.paint(f"  error: {visible(line)}", "red") for line in errors if line]
    lines += [f"  note: {visible(note)}" for note in agent["notes"]]
    if agent["needs_restart"]:
        lines.append("  its servers or its config have changed since it started: rookery agent restart")
    lines += [output.paint(f"  needs you: {visible(need['text'])}", "yellow") for need in agent["attention"]]
    if agent["sessions"]:
        lines += ["", sessions(agent["sessions"])]
    return "\n".join(lines)


def sessions(found: list[dict[str, Any]]) -> str:
    rows = [[one["id"], one["state"], one["title"] or "", one["detail"] or ""] for one in found]
    return output.table([[visible(cell) for cell in row] for row in rows], ["SESSION", "STATE", "TITLE", ""], fit=True)
