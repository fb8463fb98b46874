"""The one exception that carries a message for people: what happened, and what to do next."""

from collections.abc import Sequence
from typing import Any


class RookeryError(Exception):
    """`code` is for programs, `message` says what happened, `remedy` what to do about it.

    `details` lists what it is about, where that is more than a message can hold.
    """

    def __init__(self, code: str, message: str, remedy: str = "", details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy
        self.details = tuple(details)
        if remedy:
            self.add_note(remedy)  # so that whoever reads a traceback is told, too

    def as_dict(self) -> dict[str, Any]:
        """The object that every face answers."""
        found: dict[str, Any] = {"code": self.code, "message": self.message}
        found |= {"remedy": self.remedy} if self.remedy else {}
        return found | ({"details": [*self.details]} if self.details else {})
