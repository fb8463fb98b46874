"""`rookery guard`, and the questions on the terminal that approve content of repositories.

The question shows the whole content on the controlling terminal, and the reply is read only from there: no option and
no pipe can approve.
"""

import json
import os
from typing import Any

import click

from rookery.cli import output
from rookery.cli.groups import SuggestingGroup
from rookery.cli.guard import pins
from rookery.cli.guard.audit import audit, write_history
from rookery.cli.guard.lock import check, lock
from rookery.cli.guard.scan import scan
from rookery.cli.guard.terminal import Terminal, write_field, write_lines
from rookery.cli.options import json_option, no_start_option
from rookery.cli.output import Column, visible
from rookery.daemon_client import connection
from rookery.daemon_client.failure import Failure

# Describes the content of a subject, by its kind.
_CONTENT = {"setup": "command, which runs in each new workspace", "git-config": "programs that git would run"}
_CONTENT["justfile"] = "tasks that tools may run here, with all that the justfile imports"
_CONTENT["opencode-config"] = "OpenCode's config, which loads the plugins, tools and commands in the files above"

_CONTENT["mcp-lock"] = "what servers may list without a question, as digests; see: rookery guard diff"
_CONTENT["plugin"] = "the code of a plugin, which runs in Rookery itself with all your rights"

_HEADS = [
    Column("STATE", output.VITAL),
    Column("NAME", output.VITAL, 12),
    "KIND",
    Column("PROJECT", min_width=12),
    Column("FROM", output.MINOR, 12),
]
_APPROVE = """\b
Examples:
  rookery guard approve            all waiting items of this project
  rookery guard approve github     the item with this name
  rookery guard approve --all      all waiting items of all projects
  rookery guard approve notes tool:read
                                   one definition of the server notes
"""
_DIGEST = """\b
Examples:
  rookery guard digest                         approved items of this project
  rookery guard digest --waiting ~/src/app     waiting items too
"""


def ask_approval(terminal: Terminal, subject: dict[str, Any], count: str) -> bool:
    """Show one subject that waits for approval, ask, and return the reply.

    What it would run is shown last, so that nothing can push it off the screen.
    """
    state = "has changed since you approved it" if subject["state"] == "changed" else "is new"
    terminal.write_line(f"\n{visible(subject['name'])} ({visible(subject['kind'])}, {count}) {state}", "bold")
    write_field(terminal, "found in", subject["source"])
    write_field(terminal, "project", subject["place"])
    parts = subject.get("parts")
    if parts is not None:
        write_lines(terminal, "settings", [f"{key}: {_json(value)}" for key, value in parts["other"].items()])
        write_lines(terminal, "headers", [f"{key}: {_text(value)}" for key, value in parts["headers"].items()])
        write_lines(terminal, "variables", [f"{key}={_text(value)}" for key, value in parts["environment"].items()])
    write_field(terminal, "runs in", subject["folder"])
    write_lines(terminal, "current files", [f"{path} sha256 {digest}" for path, digest in subject["files"].items()])
    if subject["last"] is not None:
        write_lines(terminal, "changes since you approved it", _difference(subject["last"], subject["shown"]))
    if parts is not None:
        import shlex

        write_field(terminal, "command", shlex.join(parts["command"]), "bold")
        write_field(terminal, "address", parts["url"], "bold")
    else:
        write_lines(terminal, _CONTENT.get(subject["kind"], "content"), subject["content"].split("\n"), "bold")
    for risk in subject.get("risks", []):
        terminal.write_line(
            f"  {risk['level']}: {visible(risk['text'])}", "red" if risk["level"] == "warning" else "yellow"
        )
    if subject["problem"]:
        terminal.write_line(f"  it cannot be approved: {visible(subject['problem'])}", "red")
        return False
    return terminal.ask(f"Approve {visible(subject['name'])}?")


def _difference(approved: str, current: str) -> list[str]:
    import difflib

    lines = difflib.unified_diff(approved.split("\n"), current.split("\n"), "approved", "now", lineterm="", n=1)
    return list(lines)


def _text(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


@click.group(cls=SuggestingGroup, epilog="\b\nExamples:\n  rookery guard list\n  rookery guard approve\n")
def guard() -> None:
    """Approvals, pins and scans of definitions, and the audit."""


guard.add_command(scan)
guard.add_command(pins.diff)
guard.add_command(pins.block)
guard.add_command(pins.trust)
guard.add_command(lock)
guard.add_command(check)
guard.add_command(audit)


@guard.command("list", epilog="\b\nExamples:\n  rookery guard list\n  rookery guard list --history\n")
@click.option(
    "--history", is_flag=True, help="List all decisions: who approved or revoked what, when, by which content."
)
@json_option
@no_start_option
def list_(history: bool, as_json: bool, no_start: bool) -> None:
    """List waiting and approved items, or all decisions about them."""
    if history:
        write_history(as_json=as_json, start=not no_start)
        return
    data = connection.call("GET", "/api/guard/approvals", start=not no_start)
    if as_json:
        output.write_json(data)
        return
    approvals = json.loads(data)
    rows = [
        [approval["state"], approval["name"], approval["kind"], approval["place"], approval["source"]]
        for approval in approvals["waiting"]
    ]
    rows += [
        ["withheld", server["name"], f"{len(server['waiting'])} definitions", server["place"], "rookery guard diff"]
        for server in pins.load_pins(no_start)["servers"]
        if server["waiting"]
    ]
    rows += [
        ["approved", approval["name"], approval["kind"], approval["place"], _describe_origin(approval)]
        for approval in approvals["approved"]
    ]
    output.write(output.format_table(rows, _HEADS) or "nothing waits for approval")


def _describe_origin(approval: dict[str, Any]) -> str:
    """Describe how an approval was given; empty for those of earlier versions, which did not record it."""
    if approval["by"] == "digest":
        return f"by digest, {approval['source']}"
    return {"adding": "by adding the project", "terminal": "at a terminal"}.get(approval["by"], "")


@guard.command(epilog=_DIGEST)
@click.argument("path", default=".", type=click.Path())
@click.option("--waiting", is_flag=True, help="Include items that wait for approval. Review them first.")
@json_option
@no_start_option
def digest(path: str, waiting: bool, as_json: bool, no_start: bool) -> None:
    """Print the digests of the approved items of a project.

    PATH is any folder of the project. Each line approves exactly this content, on any machine whose owner puts it into
    a file of approvals or into ROOKERY_APPROVE before the daemon starts. Use this for machines without a person at a
    terminal, such as CI.
    """
    subjects = json.loads(connection.call("GET", "/api/guard/digests", start=not no_start))
    nearby = _select_nearby(subjects, os.path.realpath(path))
    chosen = [subject for subject in nearby if not subject["problem"] and (waiting or subject["state"] == "approved")]
    omitted = [subject for subject in nearby if subject not in chosen]
    if as_json:
        output.write(json.dumps(chosen))
    elif chosen:
        output.write(
            "\n".join(
                f"{subject['sha256']}  {visible(subject['kind'])} {visible(subject['name'])}" for subject in chosen
            )
        )
    for subject in omitted:
        reason = f"it cannot be approved: {subject['problem']}" if subject["problem"] else "it is not approved here"
        output.write_note(f"omitted: {visible(subject['kind'])} {visible(subject['name'])}: {visible(reason)}")
    if not chosen:
        raise Failure("approval-not-found", "nothing of this project is approved", "see: rookery guard list")


@guard.command(epilog=_APPROVE)
@click.argument("name", required=False)
@click.argument("definitions", nargs=-1, metavar="[DEFINITION]...")
@click.option("--all", "everywhere", is_flag=True, help="Search all projects, not only this one.")
@json_option
@no_start_option
def approve(name: str | None, definitions: tuple[str, ...], everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Show each waiting item in full, and ask for approval.

    Items are what repositories bring, and definitions of MCP servers that are withheld; for these see `rookery guard
    diff`. With DEFINITION, such as `read` or `tool:read`, only those of the server NAME are released.

    The command asks on the terminal, once for each item or server. There is no option that answers yes, and no process
    that Rookery started may approve.
    """
    withheld = pins.select_waiting(pins.load_pins(no_start), name, definitions, everywhere)
    waiting = json.loads(connection.call("GET", "/api/guard/approvals", start=not no_start))["waiting"]
    chosen = waiting if everywhere and name is None else _select_by_name(waiting, name, everywhere)
    chosen = [] if definitions else chosen
    if not chosen and not withheld:
        what = f"nothing named {name}" if name else "nothing"
        elsewhere = f"; {len(waiting)} in other projects: rookery guard approve --all" if waiting and not name else ""
        raise Failure("approval-not-found", f"{what} waits for approval here", f"see: rookery guard list{elsewhere}")
    approved, declined = ask_approvals(chosen) if chosen else ([], [])
    if withheld:
        released, kept = pins.ask_releases(withheld, accept_loss=everywhere and name is None)
        approved = approved + released
        declined = declined + kept
    if as_json:
        output.write(json.dumps({"approved": approved, "left": declined}))
    elif approved:
        output.write("approved: " + ", ".join(map(visible, approved)))
    if not approved:
        raise Failure("needs-approval", "nothing was approved", "the items still wait for approval")


def ask_approvals(waiting: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Show each subject and ask. Return the names of those that were approved, and of those that were not."""
    approved: list[str] = []
    declined: list[str] = []
    with Terminal() as terminal:
        for number, subject in enumerate(waiting, 1):
            if ask_approval(terminal, subject, f"{number} of {len(waiting)}"):
                key = {field: subject[field] for field in ("kind", "place", "name", "digest")}
                connection.call("POST", "/api/guard/approve", key, start=False)
                approved.append(subject["name"])
            else:
                declined.append(subject["name"])
    return approved, declined


@guard.command(epilog="\b\nExamples:\n  rookery guard revoke github\n")
@click.argument("name")
@json_option
@no_start_option
def revoke(name: str, as_json: bool, no_start: bool) -> None:
    """Revoke the approval of NAME, and stop what runs because of it."""
    approvals = _select_by_name(
        json.loads(connection.call("GET", "/api/guard/approvals", start=not no_start))["approved"], name, False
    )
    keys = {
        (approval["kind"], approval["place"], approval["name"]) for approval in approvals if approval["by"] != "digest"
    }
    if approvals and not keys:
        remedy = f"remove its line ({approvals[0]['source']}), and restart the daemon"
        raise Failure("approval-not-found", f"{name} is approved only by digest", remedy)
    if not keys:
        raise Failure("approval-not-found", f"nothing named {name} is approved", "see: rookery guard list")
    if len(keys) > 1:
        places = ", ".join(sorted(visible(place) for _, place, _ in keys))
        raise Failure(
            "invalid-input",
            f"{name} is approved in several projects: {places}",
            "run this in the project that you mean",
        )
    for kind, place, _ in keys:
        data = connection.call("POST", "/api/guard/revoke", {"kind": kind, "place": place, "name": name}, start=False)
        if as_json:
            output.write_json(data)
        else:
            output.write(f"revoked: {visible(name)}")


def _select_by_name(items: list[dict[str, Any]], name: str | None, everywhere: bool) -> list[dict[str, Any]]:
    """Return those of the current folder's project with this name; of all projects if it has none, or `everywhere`."""
    matching = [item for item in items if name in (None, item["name"])]
    nearby = _select_nearby(matching, os.path.realpath("."))
    return matching if name is not None and (everywhere or not nearby) else nearby


def _select_nearby(items: list[dict[str, Any]], path: str) -> list[dict[str, Any]]:
    """Return those of the project that contains a folder."""
    folders = [f"{folder}/" for folder in (path, _main_checkout(path)) if folder]
    return [item for item in items if any(folder.startswith(item["place"].rstrip("/") + "/") for folder in folders)]


def _main_checkout(folder: str) -> str | None:
    """Return the main checkout of the worktree that contains a folder; None if there is none.

    Approvals are stored for the main checkout.
    """
    from pathlib import Path

    for parent in (Path(folder), *Path(folder).parents):
        if (parent / ".git").is_dir():
            return None
        try:
            content = (parent / ".git").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            continue
        git_folder = parent / content.removeprefix("gitdir: ").rstrip("\r\n")
        # The git folder of a worktree is .git/worktrees/<id> of the main checkout.
        return os.path.realpath(git_folder.parents[2]) if git_folder.parent.name == "worktrees" else None
    return None
