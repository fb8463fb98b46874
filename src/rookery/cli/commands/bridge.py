"""`rookery bridge`."""

import click

from rookery.cli.launch import exec_daemon_command
from rookery.cli.ws.common import complete_workspace

_EPILOG = """\
Nothing but messages goes to stdout. The daemon is started if none runs; if it is restarted, the bridge signs in to it
again by itself, and what was under way is answered with an error. Config for a client: rookery client print CLIENT

\b
Examples:
  rookery bridge
  rookery bridge --workspace fix-login
  rookery bridge --mode search
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--workspace", metavar="NAME", shell_complete=complete_workspace, help="What this workspace sees; else everything."
)
@click.option("--project", metavar="PROJECT", help="Of this project, by id or name.")
@click.option("--mode", type=click.Choice(["list", "search"]), help="All tools, or two to search for them and to call.")
@click.option("--no-start", is_flag=True, help="Answer requests with an error instead of starting the daemon.")
def bridge(workspace: str | None, project: str | None, mode: str | None, no_start: bool) -> None:
    """MCP over stdin and stdout, for clients that speak only that."""
    words = [f"--workspace={workspace}"] if workspace is not None else []
    words += [f"--of={project}"] if project is not None else []
    words += [f"--mode={mode}"] if mode is not None else []
    words += ["--no-start"] if no_start else []
    exec_daemon_command("bridge", *words)
