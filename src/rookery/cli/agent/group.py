"""`rookery agent`."""

import click

from rookery.cli.lazy import LazyGroup

# Name -> module and the line that `--help` shows; a test compares it with the command's own.
COMMANDS = {
    "list": ("rookery.cli.agent_show:list_", "List the agents of all workspaces."),
    "show": ("rookery.cli.agent_show", "Show the agent of a workspace, and its sessions."),
    "attach": ("rookery.cli.agent_attach", "Open the agent of a workspace in this terminal."),
    "start": ("rookery.cli.agent_turn", "Start the agent of a workspace, or wake it."),
    "stop": ("rookery.cli.agent_turn", "Stop the agent of a workspace, until you start it."),
    "restart": ("rookery.cli.agent_turn", "Start the agent of a workspace anew, on the same port."),
    "resume": ("rookery.cli.agent_turn", "Take up the turns that were cut off in a workspace."),
    "logs": ("rookery.cli.agent_logs", "Show what the agent of a workspace printed."),
    "install": ("rookery.cli.agent_install", "Bring the OpenCode that agents run, if it is not here."),
    "login": ("rookery.cli.agent_install", "Sign in to a model provider, for all agents."),
}

EPILOG = """\
NAME is the current folder's workspace if it is left out. Where projects have workspaces of the same name it is
project/name. The main checkout is the workspace @main.

\b
Examples:
  rookery agent list
  rookery agent attach fix-login
  rookery agent logs -f fix-login
"""


@click.group(cls=LazyGroup, table=COMMANDS, epilog=EPILOG)
def agent() -> None:
    """Agents: an OpenCode in every workspace."""
