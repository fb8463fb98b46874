"""Children of a session in which Rookery runs tools: OpenCode knows them, and no list of sessions shows them."""

from rookery.agents.records import Session

# By it they are known again after the daemon was started anew.
TITLE = "rookery: tools by name"
ORIGIN = "execute_tool"


def is_hidden(session: Session) -> bool:
    return session.parent is not None and session.title == TITLE
