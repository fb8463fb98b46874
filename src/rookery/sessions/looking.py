"""What the waits of a session look at: messages that have changed, and the texts of toasts and tools."""

import msgspec

from rookery.sessions.finding import Found
from rookery.sessions.records import MessageShown, Toast, ToolRun


class Looked:
    """Which messages of a session have been looked at: only what has changed since is looked at again."""

    def __init__(self) -> None:
        self._book: object = None
        self._version = -1

    async def changed(self, found: Found) -> list[MessageShown]:
        """The newest first."""
        book = await found.room.ledger.book(found.session)
        if book is not self._book:
            self._book, self._version = book, -1
        elif book.version == self._version:
            return []
        changed = list(book.changed(self._version, running=found.running))
        self._version = book.version
        return changed

    def seen(self, found: Found) -> str:
        return found.room.ledger.last_words(found.id) or "no message"


def text_of(toast: Toast) -> str:
    return f"{toast.title}\n{toast.message}" if toast.title else toast.message


def said_by(run: ToolRun) -> str:
    return "\n".join([msgspec.json.encode(run.input).decode(), run.output or "", run.error or ""])
