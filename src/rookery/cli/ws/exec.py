"""`rookery ws exec`."""

import json
import os
import signal
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.failure import Failure
from rookery.cli.visible import visible
from rookery.cli.ws_names import Known, Record, around, complete, current_folder

_EPILOG = """\b
Examples:
  rookery ws exec fix-login -- make test
  rookery ws exec fix-login -- sh -c 'npm run dev -- --port $ROOKERY_PORT'
  rookery ws exec --all -- git status --short
"""

# What would make git work in another repository than the workspace's.
_OTHER = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
_NOT_FOUND, _NOT_RUNNABLE = 127, 126


class _BehindDashes(click.Command):
    """A command that leaves what stands behind -- alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[__name__] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "--", "CMD", "[ARGS]..."]


@click.command("exec", cls=_BehindDashes, epilog=_EPILOG)
@click.argument("name", required=False, shell_complete=complete)
@click.option("--all", "every", is_flag=True, help="In each workspace of the project, one after another.")
@click.option("--project", metavar="PROJECT", help="Of this project, by id or name.")
@click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
@click.pass_context
def exec_(context: click.Context, name: str | None, every: bool, project: str | None, no_start: bool) -> None:
    """Run a program in a workspace, with its ports in the environment.

    The exit code is the program's; with --all that of the first one that failed. ROOKERY_PORT is the first of the
    workspace's ten ports, ROOKERY_PORTS all of them.
    """
    command: list[str] = context.meta[__name__]
    if not command:
        raise click.UsageError("what to run stands behind --, as in: rookery ws exec NAME -- make test")
    if every and name is not None:
        raise click.UsageError("--all means each of them: leave NAME out")
    known = Known(no_start, project)
    if not every:
        one = known.one(name)
        _become(command, one["path"], _environment(known, one))
    context.exit(_run_in_each(command, known, _of_project(known)))


def _of_project(known: Known) -> list[Record]:
    """Those with a folder: of the project that is named, else the current folder's, else all."""
    records = known.all()
    here = around(records, current_folder()) if known.project is None else None
    return [
        one
        for one in records
        if one["state"] not in ("missing", "deleting") and (here is None or one["project"] == here["project"])
    ]


def _run_in_each(command: list[str], known: Known, records: list[Record]) -> int:
    from rookery.system.errors import RookeryError
    from rookery.system.foreground import run_in_foreground

    first = 0
    for one in records:
        output.narrate(output.paint(f"== {visible(one['name'])}", "bold", sys.stderr))
        try:
            code = run_in_foreground(command, one["path"], _environment(known, one))
        except RookeryError as error:
            raise Failure(error.code, error.message, error.remedy, _NOT_FOUND) from None
        first = first or code
        if code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
            break
    return first


def _environment(known: Known, one: Record) -> dict[str, str]:
    told: dict[str, Any] = json.loads(known.ask_of(one, "environment"))
    ours = {key: value for key, value in os.environ.items() if key not in _OTHER}
    return ours | told | {"PWD": one["path"]}


def _become(command: list[str], folder: str, environment: dict[str, str]) -> None:
    """This process is the program from here on, so that signals and terminal are its own."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise Failure(
            "workspace-not-found", f"{folder} cannot be entered: {error.strerror}", "rookery ws list"
        ) from None
    sys.stdout.flush()
    # Python ignores it, and what is ignored stays so in the program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - the user's own words
    except FileNotFoundError:
        raise Failure("spawn-failed", f"there is no program {command[0]}", "install it", _NOT_FOUND) from None
    except OSError as error:
        told = f"{command[0]} cannot be run: {error.strerror}"
        raise Failure("spawn-failed", told, "name a program", _NOT_RUNNABLE) from None
