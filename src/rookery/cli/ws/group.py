"""`rookery ws`."""

import click

from rookery.cli.groups import LazyGroup

# Name -> module, and the line that `--help` shows. A test compares the line with the command's own help.
COMMANDS = {
    "create": ("rookery.cli.ws.create", "Create a workspace, and print its path."),
    "list": ("rookery.cli.ws.list:list_", "List the workspaces, and which of them need you."),
    "show": ("rookery.cli.ws.show", "Show one workspace."),
    "path": ("rookery.cli.ws.show", "Print the path of a workspace."),
    "open": ("rookery.cli.ws.show:open_", "Open a workspace: its agent and its MCP server may run."),
    "close": ("rookery.cli.ws.show", "Close a workspace: stop what runs in it, and keep its files."),
    "dismiss": ("rookery.cli.ws.show", "Dismiss the failed turns of a workspace."),
    "token": ("rookery.cli.ws.show", "Print a token that is valid for one workspace only."),
    "prepare": ("rookery.cli.ws.create", "Prepare a workspace again: copy files and run the setup command."),
    "diff": ("rookery.cli.ws.diff", "Show the changes of a workspace since its base."),
    "exec": ("rookery.cli.ws.exec:exec_", "Run a program in a workspace, with its ports in the environment."),
    "meta": ("rookery.cli.ws.meta", "Workspace metadata: notes by you or an agent."),
    "rm": ("rookery.cli.ws.rm", "Delete workspaces; they go to the trash."),
    "restore": ("rookery.cli.ws.trash", "Restore a deleted workspace."),
    "trash": ("rookery.cli.ws.trash", "The trash: deleted workspaces that can be restored."),
}

EPILOG = """\
NAME defaults to the workspace of the current folder. If several projects have a workspace of that name, write
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
