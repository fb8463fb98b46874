"""`rookery bridge`."""

import click

from rookery.cli.options import project_option
from rookery.cli.ws.common import complete_workspace
from rookery.daemon_client.start import exec_daemon_command

_EPILOG = """\
stdout carries only MCP messages. The bridge starts the daemon if none runs. If the daemon restarts, the bridge
reconnects, and requests in progress fail with an error. Config for a client: rookery client print CLIENT

\b
Examples:
  rookery bridge
  rookery bridge --workspace fix-login
  rookery bridge --mode search
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--workspace",
    metavar="NAME",
    shell_complete=complete_workspace,
    help="Serve the view of this workspace, not everything.",
)
@project_option
@click.option(
    "--mode", type=click.Choice(["list", "search"]), help="List all tools, or two that search for and call them."
)
@click.option("--no-start", is_flag=True, help="Reply to requests with an error instead of starting the daemon.")
def bridge(workspace: str | None, project: str | None, mode: str | None, no_start: bool) -> None:
    """Serve MCP over stdio, for clients that support only stdio."""
    words = [f"--workspace={workspace}"] if workspace is not None else []
    words += [f"--of={project}"] if project is not None else []
    words += [f"--mode={mode}"] if mode is not None else []
    words += ["--no-start"] if no_start else []
    exec_daemon_command("bridge", *words)
