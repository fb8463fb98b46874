"""The books of all sessions, in a bounded number of bytes: the one that was not used for longest goes first."""

from rookery.sessions.book import Book

BYTES = 64 * 2**20
# No session takes so much that the others have no room.
BOOK_BYTES = 16 * 2**20


class Shelf:
    """A book that somebody holds stays, whatever that takes."""

    def __init__(self, limit: int = BYTES, book_limit: int = BOOK_BYTES) -> None:
        self.limit, self.book_limit = limit, book_limit
        self.size = 0
        self._books: dict[str, Book] = {}

    def look(self, session: str) -> Book | None:
        """Without using it."""
        return self._books.get(session)

    def take(self, session: str) -> Book | None:
        if (book := self._books.pop(session, None)) is not None:
            self._books[session] = book
        return book

    def put(self, book: Book) -> None:
        self.drop(book.session)
        self._books[book.session] = book
        self.grown(book, 0)

    def drop(self, session: str) -> None:
        if (book := self._books.pop(session, None)) is not None:
            self.size -= book.size

    def grown(self, book: Book, before: int) -> None:
        """Make room for one that was smaller before."""
        self.size += book.size - before
        if self.size <= self.limit:
            return
        for other in list(self._books.values()):
            if other is not book and not other.pins:
                self.drop(other.session)
            if self.size <= self.limit:
                return
