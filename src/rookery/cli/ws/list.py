"""`rookery ws list`, and the row of one workspace in a table."""

import json
from collections.abc import Sequence
from typing import Any

import click

from rookery.cli import output
from rookery.cli.output import Column, visible
from rookery.cli.ws.agent import describe_agent
from rookery.cli.ws.common import JsonObject, WorkspaceClient, workspace_options

_EPILOG = """\b
Examples:
  rookery ws list
  rookery ws list --attention              only those that need you
  rookery ws list --watch                  live view; those that need you come first
  rookery ws list --json | jq '.[].path'
"""

HEADS = [
    Column("NAME", output.VITAL, 16),
    # Often the same as the name.
    Column("BRANCH", output.MINOR),
    "STATE",
    "CHANGES",
    Column("AGENT", output.VITAL),
    Column("NEEDS YOU", output.VITAL, 20, wraps=True),
]
_STYLES = {"failed": "red", "missing": "red", "preparing": "cyan", "deleting": "dim", "closed": "dim"}


@click.command("list", epilog=_EPILOG)
@click.option("--attention", is_flag=True, help="Show only those that need you.")
@click.option("--status/--no-status", default=True, help="Include changes; without them the list is faster.")
@click.option("--watch", is_flag=True, help="Keep running and show every change; those that need you come first.")
@workspace_options
def list_(attention: bool, status: bool, watch: bool, project: str | None, as_json: bool, no_start: bool) -> None:
    """List the workspaces, and which of them need you.

    CHANGES shows uncommitted changes, unmerged commits, and how many commits the workspace is ahead of (+) and behind
    (-) its base.

    With --watch, the view is redrawn on every change until q or Ctrl-C. If the output is not a terminal, each change is
    printed below the one before; with --json, as one line.
    """
    client = WorkspaceClient(no_start, project)

    def fetch() -> bytes:
        data = client.request("GET", "/api/workspaces", project=project, status="true" if status else None)
        # A daemon that stops while it is watched was stopped on purpose, so it is not started again.
        client.starts_daemon = False
        if not (as_json and attention):
            return data
        return json.dumps([workspace for workspace in json.loads(data) if workspace["attention"]]).encode()

    def render(records: list[JsonObject]) -> str:
        chosen = [workspace for workspace in records if workspace["attention"]] if attention else records
        if not chosen:
            return "nothing needs you" if records else "no workspaces yet: rookery ws create NAME"
        return render_workspaces(sort_by_attention(chosen) if watch else chosen, records)

    if watch:
        from rookery.cli import live_view

        live_view.run_live_view(fetch, render, title="rookery ws list --watch", as_json=as_json)
        return
    data = fetch()
    if as_json:
        output.write_json(data)
    else:
        output.write(render(json.loads(data)))


def sort_by_attention(records: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the workspaces that need the user before the others; this sorts their projects too."""
    return sorted(records, key=lambda record: not record["attention"])


def render_workspaces(records: Sequence[JsonObject], all_records: Sequence[JsonObject]) -> str:
    """Return a table of the workspaces, or one for each project if there are several."""
    paths = {record["project"]: record["path"] for record in all_records if record["main"]}
    parts: list[str] = []
    for project in dict.fromkeys(record["project"] for record in records):
        own = [record for record in records if record["project"] == project]
        body = output.format_table([format_row(record) for record in own], HEADS, [_style(record) for record in own])
        head = output.format_labelled(f"{visible(project)}  ", visible(paths.get(project, "")), label_style="bold")
        parts.append(body if len(paths) == 1 else f"{head}\n{body}")
    return "\n\n".join(parts)


def format_row(workspace: JsonObject) -> list[str]:
    status = workspace.get("status")
    return [
        workspace["name"],
        workspace["branch"] or "(detached)",
        describe_state(workspace),
        describe_changes(status) if status else "",
        describe_agent(workspace),
        "; ".join(reason["text"] for reason in workspace.get("attention", ())),
    ]


def describe_state(workspace: JsonObject) -> str:
    """Return the state, or `closed` for a ready workspace that is not open."""
    return "closed" if workspace["state"] == "ready" and workspace.get("open") is False else workspace["state"]


def describe_changes(status: dict[str, Any]) -> str:
    ahead = status.get("ahead", 0)
    behind = status.get("behind", 0)
    parts = [
        "dirty" if status["isDirty"] else "",
        "conflicts" if status.get("conflicts") else "",
        f"{status['unmergedCommits']} unmerged" if status["unmergedCommits"] else "",
        f"merged into {status['mergedInto']}" if status.get("mergedInto") else "",
        " ".join(filter(None, [f"+{ahead}" if ahead else "", f"-{behind}" if behind else ""])),
    ]
    return ", ".join(filter(None, parts))


def _style(workspace: JsonObject) -> str | None:
    return (
        "yellow"
        if workspace.get("attention") and workspace["state"] == "ready"
        else _STYLES.get(describe_state(workspace))
    )
