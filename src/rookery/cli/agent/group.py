"""`rookery agent`."""

import click

from rookery.cli.groups import LazyGroup

# Name -> module, and the line that `--help` shows. A test compares the line with the command's own help.
COMMANDS = {
    "list": ("rookery.cli.agent.show:list_", "List the agents of all workspaces."),
    "show": ("rookery.cli.agent.show", "Show the agent of a workspace, and its sessions."),
    "attach": ("rookery.cli.agent.attach", "Open the agent of a workspace in this terminal."),
    "password": ("rookery.cli.agent.attach", "Print the password of a workspace's agent."),
    "start": ("rookery.cli.agent.start", "Start the agent of a workspace, or wake it."),
    "stop": ("rookery.cli.agent.start", "Stop the agent of a workspace until you start it again."),
    "restart": ("rookery.cli.agent.start", "Restart the agent of a workspace on the same port."),
    "resume": ("rookery.cli.agent.start", "Resume the interrupted turns of a workspace."),
    "logs": ("rookery.cli.agent.logs", "Show the output of a workspace's agent."),
    "install": ("rookery.cli.agent.install", "Install the OpenCode that agents run, if it is missing."),
    "login": ("rookery.cli.agent.install", "Sign in to a model provider, for all agents."),
}

EPILOG = """\
NAME defaults to the workspace of the current folder. If several projects have a workspace of that name, write
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
