"""The exception that carries a message for people: what happened, and what to do about it."""

from collections.abc import Sequence
from typing import Any


class RookeryError(Exception):
    """An error for users. `code` is for programs, `message` says what happened, `remedy` what to do about it.

    `details` lists the items concerned where they do not fit into a message.
    """

    def __init__(self, code: str, message: str, remedy: str = "", details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy
        self.details = tuple(details)
        if remedy:
            self.add_note(remedy)  # shown in tracebacks too

    def as_dict(self) -> dict[str, Any]:
        """Return the error object that every interface sends."""
        fields: dict[str, Any] = {"code": self.code, "message": self.message}
        fields |= {"remedy": self.remedy} if self.remedy else {}
        return fields | ({"details": [*self.details]} if self.details else {})
