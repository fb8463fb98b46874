"""`rookery session`."""

import click

from rookery.cli.groups import LazyGroup

# Name -> module, and the line that `--help` shows. A test compares the line with the command's own help.
COMMANDS = {
    "new": ("rookery.cli.session.lifecycle", "Begin a session in a workspace."),
    "list": ("rookery.cli.session.list:list_", "List the open sessions."),
    "show": ("rookery.cli.session.list", "Show one session."),
    "send": ("rookery.cli.session.send", "Send a message, and wait for what comes of it."),
    "messages": ("rookery.cli.session.messages", "Show what was said in a session."),
    "wait": ("rookery.cli.session.wait", "Wait for a message, a toast, idle, a tool, a file or the screen."),
    "toasts": ("rookery.cli.session.toasts", "Show toasts."),
    "screen": ("rookery.cli.session.screen", "Show what stands on a session's screen."),
    "asks": ("rookery.cli.session.answer", "List what sessions wait for you to answer."),
    "answer": ("rookery.cli.session.answer", "Answer what a session asks."),
    "screenshot": ("rookery.cli.session.screenshot", "Take a picture of a session's screen."),
    "tool": ("rookery.cli.session.tool", "Run a tool of the agent, beside the conversation."),
    "history": ("rookery.cli.session.tool", "List the tools that ran."),
    "abort": ("rookery.cli.session.lifecycle", "End the turn that runs in a session."),
    "close": ("rookery.cli.session.lifecycle", "Close a session."),
}

EPILOG = """\
SESSION is an id, or the name of a workspace: then its session that was used last is meant. The current folder's
workspace is a dot.

\b
Examples:
  rookery session new fix-login
  rookery session send fix-login "Run the tests, and fix what fails."
  rookery session wait fix-login --idle --timeout 600
  rookery session tool . read filePath=README.md
"""


@click.group(cls=LazyGroup, table=COMMANDS, epilog=EPILOG)
def session() -> None:
    """Sessions: conversations of agents, driven from outside."""
