"""`rookery ws create` and `rookery ws prepare`."""

import json
import shlex
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.commands.project import report_approvals
from rookery.cli.output import visible
from rookery.cli.progress import EventStream, ProgressLine
from rookery.cli.ws.agent import wait_for_prompt
from rookery.cli.ws.common import WORKSPACE_ARGUMENT, JsonObject, WorkspaceClient, current_folder, workspace_options
from rookery.daemon_client.failure import Failure

_CREATE = """\b
Examples:
  rookery ws create fix-login
  rookery ws create fix-login --prompt "The login fails with an empty password. Find out why, and fix it."
  rookery ws create fix-login --base v2.1
  rookery ws create review --branch origin-of-evil     use an existing branch
  cd "$(rookery ws create fix-login)"
"""

_WAIT = click.option(
    "--no-wait", is_flag=True, help="Return when the workspace exists; it is prepared in the background."
)

_REASONS = {
    "remote-default": "the default branch of the remote",
    "head": "the branch of the main checkout",
    "detached": "the detached HEAD",
    "branch": "an existing branch",
}


@click.command(epilog=_CREATE)
@click.argument("name")
@click.option("--base", metavar="REF", help="The start of the new branch: a branch, tag or commit.")
@click.option("--branch", metavar="EXISTING", help="Check out this branch instead of creating one.")
@click.option("--prompt", metavar="TEXT", help="The first message to the agent.")
@click.option("--no-agent", is_flag=True, help="Do not start an agent.")
@_WAIT
@workspace_options
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
    """Create a workspace, and print its path.

    This creates a worktree with a new branch NAME, from --base, else the remote's default branch, else HEAD, and
    reports the commit. An existing branch is used only with --branch. Ignored files that .keepfiles or .worktreeinclude
    list are copied from the main checkout, then the project's setup command runs. If that fails, the workspace stays,
    and the exit code is 1.

    Then the agent starts. With --prompt, the command returns when the agent has the prompt. If the prompt cannot be
    sent, for example without a model provider, it is kept, and the exit code is 3.
    """
    if prompt is not None and no_agent:
        raise click.UsageError("--no-agent and --prompt cannot be combined")
    client = WorkspaceClient(no_start, project)
    progress = ProgressLine(silent=as_json)
    registration: dict[str, Any] = {"id": project} if project else _register_project(client, progress)
    body: dict[str, Any] = {"project": registration["id"], "name": name}
    body |= {key: text for key, text in (("base", base), ("branch", branch), ("prompt", prompt)) if text is not None}
    if no_agent:
        body["agent"] = False
    with EventStream(start=not no_start) as stream:
        progress.show("making", f"creating {name} ...")
        try:
            workspace: JsonObject = json.loads(client.request("POST", "/api/workspaces", body))
            progress.write_line(_describe_start(workspace))
            if not no_wait:
                _wait_until_ready(client, stream, workspace, progress)
                if prompt is not None:
                    wait_for_prompt(stream, workspace, progress)
        except Failure as failure:
            if prompt is not None and failure.code == "setup-failed":
                failure.remedy += "; its agent still gets the prompt, with the end of that log"
            raise
        except KeyboardInterrupt:
            progress.write_line(f"the operation continues in the background; see: rookery ws show {shlex.quote(name)}")
            raise
        finally:
            progress.erase()
    _write_result(client, workspace, as_json, registration)


@click.command(epilog="\b\nExamples:\n  rookery ws prepare fix-login\n")
@WORKSPACE_ARGUMENT
@_WAIT
@workspace_options
def prepare(name: str | None, no_wait: bool, project: str | None, as_json: bool, no_start: bool) -> None:
    """Prepare a workspace again: copy files and run the setup command.

    Use this after you have fixed the cause of a failure. Files that exist in the workspace are not overwritten. If a
    preparation is already running, this waits for it.
    """
    client = WorkspaceClient(no_start, project)
    progress = ProgressLine(silent=as_json)
    with EventStream(start=not no_start) as stream:
        # Requested after the stream is open, so that the end of a preparation under way is not missed.
        workspace = client.find(name)
        progress.show("begun", f"preparing {workspace['name']} ...")
        try:
            if workspace["state"] != "preparing":
                client.request_workspace(workspace, "prepare", method="POST")
            if not no_wait:
                _wait_until_ready(client, stream, workspace, progress)
        finally:
            progress.erase()
    _write_result(client, workspace, as_json)


def _register_project(client: WorkspaceClient, progress: ProgressLine) -> dict[str, Any]:
    """Register the current folder's project if it is not registered yet, and report what that approved."""
    folder = current_folder()
    if folder is None:
        raise Failure(
            "repository-not-found",
            "the current folder does not exist any more",
            "change to a repository, or use --project",
        )
    try:
        project = json.loads(client.request("POST", "/api/projects", {"path": folder}))
    except Failure as failure:
        if failure.code == "repository-not-found":
            failure.remedy = "change to a repository, or name a project: --project"
        raise
    if project["added"]:
        progress.write_line(f"registered the project {project['id']} ({project['path']})")
    report_approvals(project)
    return project


def _describe_start(workspace: JsonObject) -> str:
    """Describe the commit that a new workspace begins at."""
    start = workspace["start"]
    ref = start["ref"]
    commit = start["commit"][:12]
    at = commit if ref.startswith(commit) else f"{ref} ({commit})"
    reason = f", {_REASONS[start['reason']]}" if start["reason"] in _REASONS else ""
    return f"{workspace['name']} begins at {at}{reason}"


def _wait_until_ready(
    client: WorkspaceClient, stream: EventStream, workspace: JsonObject, progress: ProgressLine
) -> None:
    """Show the preparation of a workspace until it has ended. Raise `Failure` if it failed."""
    for kind, data in stream.workspace_events(workspace["project"], workspace["name"]):
        if kind == "preparing" and data.get("total") != 0:
            progress.show(data["phase"], _describe_phase(data))
        elif kind == "ready":
            for problem in data.get("notCopied", ()):
                progress.write_line(f"not copied: {problem}")
            return
        elif kind == "failed":
            progress.erase()
            if data.get("code") != "needs-approval" or not _ask_approval(client, workspace, progress):
                raise _preparation_failure(workspace, data)
        elif kind in ("deleting", "deleted"):
            raise Failure("workspace-not-found", f"{workspace['name']} was deleted in the meantime")


def _describe_phase(data: dict[str, Any]) -> str:
    if data["phase"] == "copying":
        return f"copying files: {data['done']} of {data['total']}"
    return f"setting up: {data['command']}" if "command" in data else f"{data['phase']} ..."


def _ask_approval(client: WorkspaceClient, workspace: JsonObject, progress: ProgressLine) -> bool:
    """Ask for approval if a person is at the terminal, and return whether anything was approved.

    After an approval the daemon prepares the workspace again by itself.
    """
    if progress.is_silent or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from rookery.cli.guard.group import ask_approvals

    waiting = json.loads(client.request("GET", "/api/guard/approvals"))["waiting"]
    mains = {
        main["path"] for main in client.list_workspaces() if main["main"] and main["project"] == workspace["project"]
    }
    setups = [approval for approval in waiting if approval["kind"] == "setup" and approval["place"] in mains]
    # Other workspaces may wait with another setup command. One that several share is listed once, for any of them.
    chosen = [approval for approval in setups if approval["folder"] in {workspace["path"], *mains}] or setups
    return bool(chosen) and bool(ask_approvals(chosen)[0])


def _preparation_failure(workspace: JsonObject, data: dict[str, Any]) -> Failure:
    """Return the failure for a workspace that exists, but waits for approval or could not be prepared."""
    if data.get("code") == "needs-approval":
        return Failure("needs-approval", data["error"], "it is prepared as soon as you approve it")
    command = f"rookery ws prepare {shlex.quote(workspace['name'])}"
    message = f"{workspace['path']} was created, but not prepared: {data['error']}"
    return Failure("setup-failed", message, f"fix the cause, then: {command}")


def _write_result(
    client: WorkspaceClient, workspace: JsonObject, as_json: bool, registration: dict[str, Any] | None = None
) -> None:
    if as_json:
        data = client.request_workspace(workspace)
        if registration and registration.get("added"):
            approvals = {"approved": registration["approved"], "note": registration["note"]}
            data = json.dumps(json.loads(data) | approvals).encode()
        output.write_json(data)
    else:
        output.write(visible(workspace["path"]))
