"""`rookery guard`."""

import json
import os
from typing import Any

import click

from rookery.cli import asking, link, output
from rookery.cli.failure import Failure
from rookery.cli.visible import visible

_APPROVE = """\b
Examples:
  rookery guard approve            what waits in this folder's project
  rookery guard approve github     what has this name
  rookery guard approve --all      what waits in any project
"""


@click.group()
def guard() -> None:
    """What the user has approved of what repositories bring along."""


@guard.command("list", epilog="\b\nExamples:\n  rookery guard list\n  rookery guard list --json\n")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
def list_(as_json: bool, no_start: bool) -> None:
    """List what waits for approval and what is approved."""
    data = link.call("GET", "/api/guard/approvals", start=not no_start)
    if as_json:
        output.answer_json(data)
        return
    found = json.loads(data)
    rows = [[one["state"], one["name"], one["kind"], one["place"], one["source"]] for one in found["waiting"]]
    rows += [["approved", one["name"], one["kind"], one["place"], ""] for one in found["approved"]]
    heads = ["STATE", "NAME", "KIND", "PROJECT", "FROM"]
    output.answer(output.table([[visible(cell) for cell in row] for row in rows], heads) or "nothing waits")


@guard.command(epilog=_APPROVE)
@click.argument("name", required=False)
@click.option("--all", "everywhere", is_flag=True, help="Look in every project, not only in this folder's.")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
def approve(name: str | None, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Show what waits, whole, and ask whether to approve it.

    Asks on the terminal, once for each. Nothing else can answer: there is no option that says yes, and no process
    that Rookery started may approve.
    """
    waiting = json.loads(link.call("GET", "/api/guard/approvals", start=not no_start))["waiting"]
    chosen = waiting if everywhere and name is None else _of(waiting, name, everywhere)
    if not chosen:
        what = f"nothing named {name}" if name else "nothing"
        elsewhere = f"; {len(waiting)} in other projects: rookery guard approve --all" if waiting and not name else ""
        raise Failure("approval-not-found", f"{what} waits for approval here", f"see: rookery guard list{elsewhere}")
    approved, left = ask_about(chosen)
    if as_json:
        output.answer(json.dumps({"approved": approved, "left": left}))
    elif approved:
        output.answer("approved: " + ", ".join(map(visible, approved)))
    if not approved:
        raise Failure("needs-approval", "nothing was approved", "what waits goes on waiting")


def ask_about(waiting: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Show each and ask; answers the names of those that were approved, and of those that were not."""
    approved: list[str] = []
    left: list[str] = []
    with asking.Terminal() as terminal:
        for number, one in enumerate(waiting, 1):
            if asking.approved(terminal, one, f"{number} of {len(waiting)}"):
                key = {field: one[field] for field in ("kind", "place", "name", "digest")}
                link.call("POST", "/api/guard/approve", key, start=False)
                approved.append(one["name"])
            else:
                left.append(one["name"])
    return approved, left


@guard.command(epilog="\b\nExamples:\n  rookery guard revoke github\n")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
def revoke(name: str, as_json: bool, no_start: bool) -> None:
    """Take back the approval of NAME. What runs because of it is stopped."""
    known = json.loads(link.call("GET", "/api/guard/approvals", start=not no_start))["approved"]
    keys = {(one["kind"], one["place"], one["name"]) for one in _of(known, name, False)}
    if not keys:
        raise Failure("approval-not-found", f"nothing named {name} is approved", "see: rookery guard list")
    if len(keys) > 1:
        places = ", ".join(sorted(visible(place) for _, place, _ in keys))
        raise Failure("invalid-input", f"{name} is approved in several projects: {places}", "go to the one you mean")
    for kind, place, _ in keys:
        data = link.call("POST", "/api/guard/revoke", {"kind": kind, "place": place, "name": name}, start=False)
        if as_json:
            output.answer_json(data)
        else:
            output.answer(f"revoked: {visible(name)}")


def _of(found: list[dict[str, Any]], name: str | None, everywhere: bool) -> list[dict[str, Any]]:
    """Those of this folder's project; by name also those of others, if this one has none."""
    named = [one for one in found if name in (None, one["name"])]
    here = os.path.realpath(".")
    heres = [f"{one}/" for one in (here, _main_checkout(here)) if one]
    near = [one for one in named if any(each.startswith(one["place"].rstrip("/") + "/") for each in heres)]
    return named if name is not None and (everywhere or not near) else near


def _main_checkout(folder: str) -> str | None:
    """The main checkout of the worktree that a folder lies in: for it approvals are kept. None where there is none."""
    from pathlib import Path

    for above in (Path(folder), *Path(folder).parents):
        try:
            named = (above / ".git").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            continue
        own = above / named.removeprefix("gitdir: ").rstrip("\r\n")
        # .git/worktrees/<id> of the main checkout.
        return os.path.realpath(own.parents[2]) if own.parent.name == "worktrees" else None
    return None
