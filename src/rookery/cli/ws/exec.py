"""`rookery ws exec`."""

import json
import os
import signal
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.options import no_start_option, project_option
from rookery.cli.output import visible
from rookery.cli.ws.common import JsonObject, WorkspaceClient, complete_workspace, current_folder, find_enclosing
from rookery.daemon_client.failure import Failure

_EPILOG = """\b
Examples:
  rookery ws exec fix-login -- make test
  rookery ws exec fix-login -- sh -c 'npm run dev -- --port $ROOKERY_PORT'
  rookery ws exec --all -- git status --short
  rookery ws exec --sandbox fix-login -- npm ci
"""

# Variables that would make git work in another repository than the workspace's.
_GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
_NOT_FOUND = 127
_NOT_RUNNABLE = 126


class _ExecCommand(click.Command):
    """A command that does not parse the words after `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        index = args.index("--") if "--" in args else len(args)
        ctx.meta[__name__] = args[index + 1 :]
        return super().parse_args(ctx, args[:index])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "--", "CMD", "[ARGS]..."]


@click.command("exec", cls=_ExecCommand, epilog=_EPILOG)
@click.argument("name", required=False, shell_complete=complete_workspace)
@click.option("--all", "every", is_flag=True, help="Run it in each workspace of the project, one after another.")
@click.option("--sandbox", is_flag=True, help="Confine the program: it reaches this workspace and little more.")
@click.option("--strict", is_flag=True, help="Confine it more strictly, also its TCP ports.")
@project_option
@no_start_option
@click.pass_context
def exec_(
    context: click.Context,
    name: str | None,
    every: bool,
    sandbox: bool,
    strict: bool,
    project: str | None,
    no_start: bool,
) -> None:
    """Run a program in a workspace, with its ports in the environment.

    The exit code is that of the program; with --all, of the first run that failed. ROOKERY_PORT is the first of the
    workspace's ten ports, ROOKERY_PORTS all of them.
    """
    command: list[str] = context.meta[__name__]
    if not command:
        raise click.UsageError("put the command after --, as in: rookery ws exec NAME -- make test")
    if every and name is not None:
        raise click.UsageError("NAME and --all cannot be combined")
    if every and (sandbox or strict):
        raise click.UsageError("--sandbox and --all cannot be combined")
    client = WorkspaceClient(no_start, project)
    if not every:
        workspace = client.find(name)
        environment = _environment(client, workspace)
        if sandbox or strict:
            environment = _enter_sandbox(client, workspace, "strict" if strict else "workspace", environment)
        _exec_program(command, workspace["path"], environment)
    context.exit(_run_in_each(command, client, _list_workspaces(client)))


def _list_workspaces(client: WorkspaceClient) -> list[JsonObject]:
    """Return the workspaces that have a folder: of the named project, else of the current folder's, else of all."""
    records = client.list_workspaces()
    here = find_enclosing(records, current_folder()) if client.project is None else None
    return [
        record
        for record in records
        if record["state"] not in ("missing", "deleting") and (here is None or record["project"] == here["project"])
    ]


def _run_in_each(command: list[str], client: WorkspaceClient, records: list[JsonObject]) -> int:
    """Run the program in one workspace after another, and return the first exit code other than 0."""
    from rookery.system.errors import RookeryError
    from rookery.system.process.launch import run_in_foreground

    first_failure = 0
    for workspace in records:
        output.write_note(output.paint(f"== {visible(workspace['name'])}", "bold", sys.stderr))
        try:
            code = run_in_foreground(command, workspace["path"], _environment(client, workspace))
        except RookeryError as error:
            raise Failure(error.code, error.message, error.remedy, _NOT_FOUND) from None
        first_failure = first_failure or code
        if code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
            break
    return first_failure


def _environment(client: WorkspaceClient, workspace: JsonObject) -> dict[str, str]:
    variables: dict[str, Any] = json.loads(client.request_workspace(workspace, "environment"))
    inherited = {key: value for key, value in os.environ.items() if key not in _GIT_VARIABLES}
    return inherited | variables | {"PWD": workspace["path"]}


def _enter_sandbox(
    client: WorkspaceClient, workspace: JsonObject, mode: str, environment: dict[str, str]
) -> dict[str, str]:
    """Confine this process for good, and return the environment of the sandbox."""
    from rookery.system.confinement.kernel import confine
    from rookery.system.confinement.policy import parse_policy
    from rookery.system.errors import RookeryError

    sandbox: JsonObject = json.loads(client.request_workspace(workspace, "sandbox", mode=mode))
    if sandbox["policy"] is None:
        output.write_note("sandbox.unavailable allows it: the program runs unconfined")
        return environment
    for what in sandbox["missing"]:
        output.write_note(f"this kernel does not limit {what}")
    try:
        confine(parse_policy(sandbox["policy"]))
    except RookeryError as error:
        raise Failure(error.code, error.message, error.remedy) from None
    kept = {key: value for key, value in environment.items() if key not in sandbox["removed"]}
    return kept | sandbox["variables"]


def _exec_program(command: list[str], folder: str, environment: dict[str, str]) -> None:
    """Replace this process with the program, so that it receives signals and uses the terminal directly."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise Failure(
            "workspace-not-found", f"{folder} cannot be entered: {error.strerror}", "rookery ws list"
        ) from None
    sys.stdout.flush()
    # Python ignores SIGPIPE, and the program would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - the user's own words
    except FileNotFoundError:
        raise Failure("spawn-failed", f"there is no program {command[0]}", "install it", _NOT_FOUND) from None
    except OSError as error:
        message = f"{command[0]} cannot be run: {error.strerror}"
        raise Failure("spawn-failed", message, "name a program", _NOT_RUNNABLE) from None
