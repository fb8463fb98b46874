"""`rookery ws list`, and how a workspace is told in one row."""

import json
from collections.abc import Sequence
from typing import Any

import click

from rookery.cli import output
from rookery.cli.visible import visible
from rookery.cli.ws_agent import agent_of
from rookery.cli.ws_names import Known, Record, common

_EPILOG = """\b
Examples:
  rookery ws list
  rookery ws list --attention              only those that need you
  rookery ws list --json | jq '.[].path'
"""

HEADS = ["NAME", "BRANCH", "STATE", "CHANGES", "AGENT", "NEEDS YOU"]
_STYLES = {"failed": "red", "missing": "red", "preparing": "cyan", "deleting": "dim", "closed": "dim"}


@click.command("list", epilog=_EPILOG)
@click.option("--attention", is_flag=True, help="Only those that need you.")
@click.option("--status/--no-status", default=True, help="Ask for changes, or answer faster without them.")
@common
def list_(attention: bool, status: bool, project: str | None, as_json: bool, no_start: bool) -> None:
    """List the workspaces, and who needs you.

    CHANGES tells of changes that are not committed, commits that are not merged, and how many commits it is ahead (+)
    and behind (-) of its base.
    """
    known = Known(no_start, project)
    data = known.ask("GET", "/api/workspaces", project=project, status="true" if status else None)
    found: list[Record] = json.loads(data)
    chosen = [one for one in found if one["attention"]] if attention else found
    if as_json:
        output.answer_json(json.dumps(chosen).encode() if attention else data)
    elif chosen:
        output.answer(tables(chosen, found))
    else:
        output.answer("nothing needs you" if found else "no workspaces yet: rookery ws create NAME")


def tables(records: Sequence[Record], every: Sequence[Record]) -> str:
    """A table, or one for each project where there are several."""
    paths = {one["project"]: one["path"] for one in every if one["main"]}
    parts: list[str] = []
    for project in dict.fromkeys(one["project"] for one in records):
        own = [one for one in records if one["project"] == project]
        body = output.table([row(one) for one in own], HEADS, [_style(one) for one in own], fit=True)
        head = output.paint(visible(project), "bold") + f"  {visible(paths.get(project, ''))}".rstrip()
        parts.append(body if len(paths) == 1 else f"{head}\n{body}")
    return "\n\n".join(parts)


def row(one: Record) -> list[str]:
    status = one.get("status")
    told = [
        one["name"],
        one["branch"] or "(detached)",
        state_of(one),
        changes(status) if status else "",
        agent_of(one),
        "; ".join(reason["text"] for reason in one.get("attention", ())),
    ]
    return [visible(cell) for cell in told]


def state_of(one: Record) -> str:
    """As it is, or that it is closed where nothing else is to be said."""
    return "closed" if one["state"] == "ready" and one.get("open") is False else one["state"]


def changes(status: dict[str, Any]) -> str:
    ahead, behind = status.get("ahead", 0), status.get("behind", 0)
    parts = [
        "dirty" if status["isDirty"] else "",
        "conflicts" if status.get("conflicts") else "",
        f"{status['unmergedCommits']} unmerged" if status["unmergedCommits"] else "",
        " ".join(filter(None, [f"+{ahead}" if ahead else "", f"-{behind}" if behind else ""])),
    ]
    return ", ".join(filter(None, parts))


def _style(one: Record) -> str | None:
    return "yellow" if one.get("attention") and one["state"] == "ready" else _STYLES.get(state_of(one))
