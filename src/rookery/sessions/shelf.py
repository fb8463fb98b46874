"""The books of all sessions, in a bounded number of bytes: the one that was not used for longest goes first."""

from rookery.sessions.book import Book

BYTES = 64 * 2**20
# No session takes so much that the others have no room.
BOOK_BYTES = 16 * 2**20


class Shelf:
    """A book that somebody holds stays, whatever that takes."""

    def __init__(self, limit: int = BYTES, book_limit: int = BOOK_BYTES) -> None:
        self.limit, self.book_limit = limit, book_limit
        self._books: dict[str, Book] = {}

    @property
    def size(self) -> int:
        return sum(book.size for book in self._books.values())

    def look(self, session: str) -> Book | None:
        """Without using it."""
        return self._books.get(session)

    def take(self, session: str) -> Book | None:
        if (book := self._books.pop(session, None)) is not None:
            self._books[session] = book
        return book

    def put(self, book: Book) -> None:
        self._books.pop(book.session, None)
        self._books[book.session] = book
        self.trim(book)

    def drop(self, session: str) -> None:
        self._books.pop(session, None)

    def trim(self, grown: Book) -> None:
        """Make room for one that has grown."""
        size = self.size
        for book in list(self._books.values()):
            if size <= self.limit:
                return
            if book is not grown and not book.pins:
                size -= book.size
                self.drop(book.session)
