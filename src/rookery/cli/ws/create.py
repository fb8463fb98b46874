"""`rookery ws create` and `rookery ws prepare`."""

import json
import shlex
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.failure import Failure
from rookery.cli.visible import visible
from rookery.cli.ws_agent import wait_for_prompt
from rookery.cli.ws_names import NAME, Known, Record, common, current_folder
from rookery.cli.ws_watch import Narration, Watch

_CREATE = """\b
Examples:
  rookery ws create fix-login
  rookery ws create fix-login --prompt "The login fails with an empty password. Find out why, and fix it."
  rookery ws create fix-login --base v2.1
  rookery ws create review --branch origin-of-evil     a branch that exists
  cd "$(rookery ws create fix-login)"
"""

_WAIT = click.option("--no-wait", is_flag=True, help="Return when it is made: preparing it goes on.")


@click.command(epilog=_CREATE)
@click.argument("name")
@click.option("--base", metavar="REF", help="Where its branch begins: a branch, tag or commit.")
@click.option("--branch", metavar="EXISTING", help="Check this branch out instead of making one.")
@click.option("--prompt", metavar="TEXT", help="The first message to its agent.")
@click.option("--no-agent", is_flag=True, help="Start no agent in it, until you do.")
@_WAIT
@common
def create(
    name: str,
    base: str | None,
    branch: str | None,
    prompt: str | None,
    no_agent: bool,
    no_wait: bool,
    project: str | None,
    as_json: bool,
    no_start: bool,
) -> None:
    """Make a workspace, and print its path.

    It is a worktree with a branch called NAME, from --base, else the remote's default branch, else HEAD. Ignored files
    that .keepfiles or .worktreeinclude list are brought along, then the project's setup command runs. If that fails,
    the workspace stays, and the exit code is 1.

    Then its agent starts. With --prompt this returns when the agent has it; if it cannot be sent, as without a model
    provider, it is kept, and the exit code is 3.
    """
    if prompt is not None and no_agent:
        raise click.UsageError("--no-agent leaves nobody to read the --prompt: leave one of them out")
    known = Known(no_start, project)
    narration = Narration(silent=as_json)
    asked: dict[str, Any] = {"project": project or _registered(known, narration), "name": name}
    asked |= {key: text for key, text in (("base", base), ("branch", branch), ("prompt", prompt)) if text is not None}
    if no_agent:
        asked["agent"] = False
    with Watch(start=not no_start) as watch:
        narration.tell("making", f"making {name} ...")
        try:
            made: Record = json.loads(known.ask("POST", "/api/workspaces", asked))
            if not no_wait:
                _wait(known, watch, made, narration)
                if prompt is not None:
                    wait_for_prompt(watch, made, narration)
        except Failure as failure:
            if prompt is not None and failure.code == "setup-failed":
                failure.remedy += "; its agent gets the prompt all the same, with the end of that log"
            raise
        except KeyboardInterrupt:
            narration.remark(f"what was begun goes on; see it: rookery ws show {shlex.quote(name)}")
            raise
        finally:
            narration.end()
    _answer(known, made, as_json)


@click.command(epilog="\b\nExamples:\n  rookery ws prepare fix-login\n")
@NAME
@_WAIT
@common
def prepare(name: str | None, no_wait: bool, project: str | None, as_json: bool, no_start: bool) -> None:
    """Prepare a workspace again: bring files along and run the setup command.

    For after a failure, once you have mended what made it fail. One that is being prepared already is waited for.
    """
    known = Known(no_start, project)
    narration = Narration(silent=as_json)
    with Watch(start=not no_start) as watch:
        # After the watch has begun, so that the end of one that is under way is not missed.
        one = known.one(name)
        narration.tell("begun", f"preparing {one['name']} ...")
        try:
            if one["state"] != "preparing":
                known.ask_of(one, "prepare", method="POST")
            if not no_wait:
                _wait(known, watch, one, narration)
        finally:
            narration.end()
    _answer(known, one, as_json)


def _registered(known: Known, narration: Narration) -> str:
    """The current folder's project, which becomes one if it is none yet."""
    folder = current_folder()
    if folder is None:
        raise Failure("repository-not-found", "the current folder does not exist any more", "go to one, or --project")
    try:
        found = json.loads(known.ask("POST", "/api/projects", {"path": folder}))
    except Failure as failure:
        if failure.code == "repository-not-found":
            failure.remedy = "go to a repository, or say which project: --project"
        raise
    if found["added"]:
        narration.remark(f"registered the project {found['id']} ({found['path']})")
    return found["id"]


def _wait(known: Known, watch: Watch, one: Record, narration: Narration) -> None:
    """Tell how its preparation goes until that has ended, and fail if it did."""
    for kind, told in watch.events(one["project"], one["name"]):
        if kind == "preparing" and told.get("total") != 0:
            narration.tell(told["phase"], _phase(told))
        elif kind == "ready":
            for problem in told.get("notCopied", ()):
                narration.remark(f"not brought along: {problem}")
            return
        elif kind == "failed":
            narration.end()
            if told.get("code") != "needs-approval" or not _approved(known, one, narration):
                raise _failed(one, told)
        elif kind in ("deleting", "deleted"):
            raise Failure("workspace-not-found", f"{one['name']} was deleted meanwhile")


def _phase(told: dict[str, Any]) -> str:
    if told["phase"] == "copying":
        return f"bringing files along: {told['done']} of {told['total']}"
    return f"setting up: {told['command']}" if "command" in told else f"{told['phase']} ..."


def _approved(known: Known, one: Record, narration: Narration) -> bool:
    """Ask at once if a person is there. What is approved is prepared again by itself."""
    if narration.silent or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from rookery.cli.guard import ask_about

    waiting = json.loads(known.ask("GET", "/api/guard/approvals"))["waiting"]
    mains = {main["path"] for main in known.all() if main["main"] and main["project"] == one["project"]}
    setups = [each for each in waiting if each["kind"] == "setup" and each["place"] in mains]
    # Other workspaces may wait with another one. The same in several is listed once, in whichever of them.
    chosen = [each for each in setups if each["folder"] in {one["path"], *mains}] or setups
    return bool(chosen) and bool(ask_about(chosen)[0])


def _failed(one: Record, told: dict[str, Any]) -> Failure:
    """Made, and not prepared: what to do depends on whether it only waits for the user."""
    if told.get("code") == "needs-approval":
        return Failure("needs-approval", told["error"], "approved, it is prepared by itself")
    again = f"rookery ws prepare {shlex.quote(one['name'])}"
    said = f"{one['path']} is made, but not prepared: {told['error']}"
    return Failure("setup-failed", said, f"mend that, then: {again}")


def _answer(known: Known, one: Record, as_json: bool) -> None:
    if as_json:
        output.answer_json(known.ask_of(one))
    else:
        output.answer(visible(one["path"]))
