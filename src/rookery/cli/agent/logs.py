"""`rookery agent logs`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.ws.common import WORKSPACE_ARGUMENT, WorkspaceClient, workspace_options

_EPILOG = """\b
Examples:
  rookery agent logs fix-login
  rookery agent logs -f -n 20 fix-login
"""


@click.command(epilog=_EPILOG)
@WORKSPACE_ARGUMENT
@click.option("-f", "--follow", is_flag=True, help="Show new output until Ctrl-C.")
@click.option(
    "-n", "--lines", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Maximum number of lines."
)
@workspace_options
def logs(name: str | None, follow: bool, lines: int, project: str | None, as_json: bool, no_start: bool) -> None:
    """Show the output of a workspace's agent.

    This includes the output of earlier runs, also if the agent does not run now.
    """
    if follow and as_json:
        raise click.UsageError("--follow and --json cannot be combined")
    client = WorkspaceClient(no_start, project)
    data = client.request_workspace(client.find(name), "agent", "logs", tail=str(lines))
    if as_json:
        output.write_json(data)
        return
    log: dict[str, Any] = json.loads(data)
    if follow:
        _follow(log["path"], lines)
    elif log["lines"]:
        output.write("\n".join(output.visible_lines(line) for line in log["lines"]))
    else:
        output.write_note("the agent has printed nothing yet")


def _follow(path: str, last: int) -> None:
    from pathlib import Path

    from rookery.system.fs.follow import follow_lines

    follow_lines(Path(path), last, lambda line: output.write(output.visible_lines(line)))
