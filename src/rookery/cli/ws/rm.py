"""`rookery ws rm`."""

import json
import os
import shlex
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.failure import Failure, failure_from
from rookery.cli.visible import visible
from rookery.cli.ws_names import Known, Record, around, common, complete, current_folder, find
from rookery.cli.ws_watch import Narration, Watch

_EPILOG = """\b
Examples:
  rookery ws rm fix-login
  rookery ws rm fix-login --keep-branch
  rookery ws rm --merged                   all whose work is merged, after showing them
  rookery ws restore fix-login             it was moved to the trash
"""

_STEPS = {"stop": "stopping what runs in it", "processes": "looking for processes in it"}


class Removal:
    """How to delete, and what came of it."""

    def __init__(self, known: Known, watch: Watch, narration: Narration, *, force: bool, keep_branch: bool) -> None:
        self._known, self._watch, self._narration = known, watch, narration
        self._force, self._keep_branch = force, keep_branch

    def begin(self, one: Record, *, force: bool = False) -> None:
        wanted = {"force": _flag(force or self._force), "keepBranch": _flag(self._keep_branch)}
        self._known.ask_of(one, method="DELETE", **wanted)

    def follow(self, one: Record) -> dict[str, Any]:
        """Until it is in the trash; answers the deletion's last word."""
        for kind, data in self._watch.events(one["project"], one["name"]):
            progress = data.get("progress")
            if progress is None:
                continue
            if kind == "deleting" and progress["step"]:
                said = _STEPS.get(progress["step"], "moving it to the trash")
                self._narration.tell(f"{one['name']} {said}", f"{one['name']}: {said} ...")
            elif kind == "deleted":
                for process in progress["processes"]:
                    self._narration.remark(f"still lives in it: {process['name']} (pid {process['pid']})")
                return progress
            elif kind == "failed":
                raise failure_from(progress["error"])
        raise AssertionError("the events do not end")


@click.command(epilog=_EPILOG)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete)
@click.option("--force", is_flag=True, help="Also with work that is not committed or merged; the trash keeps it.")
@click.option("--keep-branch", is_flag=True, help="Leave the branch where it is.")
@click.option("--merged", is_flag=True, help="All that are clean, and whose work is merged.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--no-wait", is_flag=True, help="Return when it has begun.")
@common
def rm(
    names: tuple[str, ...],
    force: bool,
    keep_branch: bool,
    merged: bool,
    yes: bool,
    no_wait: bool,
    project: str | None,
    as_json: bool,
    no_start: bool,
) -> None:
    """Delete workspaces; they go to the trash.

    What is not committed, or in no other branch, is refused with 3 and listed, unless you say --force. The whole
    folder and the branch are kept in the trash all the same, and `rookery ws restore` brings them back.
    """
    if merged and (names or force):
        raise click.UsageError("--merged chooses for itself what is safe to delete: leave names and --force out")
    known = Known(no_start, project)
    narration = Narration(silent=as_json)
    chosen = _merged(known, yes, as_json) if merged else _named(known, names, yes)
    stood_in = around(chosen, current_folder())
    home = _leave(known, stood_in)
    done: list[Record] = []
    failures: list[Failure] = []
    with Watch(start=not no_start) as watch:
        removal = Removal(known, watch, narration, force=force, keep_branch=keep_branch)
        for one in chosen:
            try:
                _begin(removal, one, ask=not (yes or as_json))
                trash = None if no_wait else removal.follow(one)["trash"]
                done.append({"project": one["project"], "name": one["name"], "trash": trash})
                narration.end()
                if not as_json:
                    output.answer(f"{visible(one['name'])} is {'being deleted' if no_wait else 'in the trash'}")
            except Failure as failure:
                narration.end()
                failures.append(failure)
                if len(chosen) > 1:
                    narration.remark(f"{one['name']}: {failure.message.partition(chr(10))[0]}")
    if as_json:
        output.answer(json.dumps({"deleted": done}))
    elif home and any(_same(one, stood_in) for one in done):
        narration.remark(f"the folder that you are in has moved to the trash; go on with: cd {shlex.quote(home)}")
    if failures:
        raise failures[0]


def _named(known: Known, names: tuple[str, ...], yes: bool) -> list[Record]:
    """All of them are found before the first one is deleted."""
    if names:
        records = known.all()
        found = [find(records, name, current_folder()) for name in names]
        return list({(one["project"], one["name"]): one for one in found}.values())
    one = known.one(None)
    if not yes:
        _must_agree(f"Delete {visible(one['name'])}, the workspace that you are in?", "say --yes, or name it")
    return [one]


def _merged(known: Known, yes: bool, as_json: bool) -> list[Record]:
    found: list[Record] = json.loads(known.ask("GET", "/api/workspaces/merged", project=known.project))
    if not found:
        output.narrate("no workspace is merged and clean")
        return []
    if not as_json:
        rows = [[visible(one["name"]), visible(one["branch"] or ""), one["how"], visible(one["path"])] for one in found]
        output.narrate(output.table(rows, ["NAME", "BRANCH", "HOW", "PATH"]))
    if not yes:
        _must_agree(f"Delete these {len(found)}?", "say --yes")
    return found


def _begin(removal: Removal, one: Record, *, ask: bool) -> None:
    """What is not clean is shown, and deleted if a person says so."""
    try:
        removal.begin(one)
    except Failure as failure:
        if failure.code != "workspace-not-clean" or not ask or not sys.stdin.isatty():
            raise
        output.narrate("\n".join(map(visible, failure.message.split("\n"))))
        if not click.confirm("Move it to the trash all the same?", err=True):
            raise Failure(failure.code, f"{one['name']} was not deleted", failure.remedy) from None
        removal.begin(one, force=True)


def _must_agree(question: str, otherwise: str) -> None:
    if not sys.stdin.isatty():
        raise Failure("needs-answer", "nothing was deleted: nobody is there to ask", otherwise)
    click.confirm(question, abort=True, err=True)


def _leave(known: Known, one: Record | None) -> str | None:
    """Do not stand in what is to be deleted; answers where to go if the user stands there."""
    if one is None:
        return None
    os.chdir("/")
    mains = [main for main in known.all() if main["main"] and main["project"] == one["project"]]
    return mains[0]["path"] if mains else None


def _same(one: Record, other: Record | None) -> bool:
    return other is not None and (one["project"], one["name"]) == (other["project"], other["name"])


def _flag(value: bool) -> str | None:
    return "true" if value else None
