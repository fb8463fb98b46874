"""`rookery session`."""

import click

from rookery.cli.groups import LazyGroup

# Name -> module, and the line that `--help` shows. A test compares the line with the command's own help.
COMMANDS = {
    "new": ("rookery.cli.session.lifecycle", "Start a session in a workspace."),
    "list": ("rookery.cli.session.list:list_", "List the open sessions."),
    "show": ("rookery.cli.session.list", "Show one session."),
    "send": ("rookery.cli.session.send", "Send a message, and wait for the reply."),
    "messages": ("rookery.cli.session.messages", "Show the messages of a session."),
    "wait": ("rookery.cli.session.wait", "Wait for a message, a toast, idle, a tool, a file or the screen."),
    "toasts": ("rookery.cli.session.toasts", "Show toasts."),
    "screen": ("rookery.cli.session.screen", "Show the screen of a session."),
    "asks": ("rookery.cli.session.answer", "List the questions that wait for your answer."),
    "answer": ("rookery.cli.session.answer", "Answer a question of a session."),
    "screenshot": ("rookery.cli.session.screen", "Take a picture of a session's screen."),
    "tool": ("rookery.cli.session.tool", "Run a tool of the agent outside the conversation."),
    "history": ("rookery.cli.session.tool", "List the tools that ran."),
    "abort": ("rookery.cli.session.lifecycle", "Stop the running turn of a session."),
    "close": ("rookery.cli.session.lifecycle", "Close a session."),
}

EPILOG = """\
SESSION is a session id or a workspace name. A workspace name selects the session that was used last in it. A dot is
the workspace of the current folder.

\b
Examples:
  rookery session new fix-login
  rookery session send fix-login "Run the tests, and fix what fails."
  rookery session wait fix-login --idle --timeout 600
  rookery session tool . read filePath=README.md
"""


@click.group(cls=LazyGroup, table=COMMANDS, epilog=EPILOG)
def session() -> None:
    """Sessions: read and control the conversations of agents."""
