"""`rookery ws`."""

import click

from rookery.cli.groups import LazyGroup

# Name -> module, and the line that `--help` shows. A test compares the line with the command's own help.
COMMANDS = {
    "create": ("rookery.cli.ws.create", "Make a workspace, and print its path."),
    "list": ("rookery.cli.ws.list:list_", "List the workspaces, and who needs you."),
    "show": ("rookery.cli.ws.show", "Show one workspace."),
    "path": ("rookery.cli.ws.show", "Print the path of a workspace."),
    "open": ("rookery.cli.ws.show:open_", "Open a workspace: its agent and its MCP server may run."),
    "close": ("rookery.cli.ws.show", "Close a workspace: what runs in it is stopped, and its files stay."),
    "dismiss": ("rookery.cli.ws.show", "Dismiss the failed turns of a workspace."),
    "token": ("rookery.cli.ws.show", "Print the token that opens a workspace and no other."),
    "prepare": ("rookery.cli.ws.create", "Prepare a workspace again: bring files along and run the setup command."),
    "diff": ("rookery.cli.ws.diff", "Show what a workspace has changed since its base."),
    "exec": ("rookery.cli.ws.exec:exec_", "Run a program in a workspace, with its ports in the environment."),
    "meta": ("rookery.cli.ws.meta", "The metadata of a workspace: what you or an agent note about it."),
    "rm": ("rookery.cli.ws.rm", "Delete workspaces; they go to the trash."),
    "restore": ("rookery.cli.ws.trash", "Bring a deleted workspace back."),
    "trash": ("rookery.cli.ws.trash", "What was deleted and can be brought back."),
}

EPILOG = """\
NAME is the current folder's workspace if it is left out. Where projects have workspaces of the same name it is
project/name. The main checkout is the workspace @main.

\b
Examples:
  rookery ws create fix-login
  cd "$(rookery ws path fix-login)"
  rookery ws list
  rookery ws rm fix-login
"""


@click.group(cls=LazyGroup, table=COMMANDS, epilog=EPILOG)
def ws() -> None:
    """Workspaces: a worktree for every task."""
