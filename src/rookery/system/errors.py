"""The one exception that carries a message for people: what happened, and what to do next."""


class RookeryError(Exception):
    """`code` is for programs, `message` says what happened, `remedy` what to do about it."""

    def __init__(self, code: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy

    def as_dict(self) -> dict[str, str]:
        """The object that every face answers."""
        found = {"code": self.code, "message": self.message}
        return found | {"remedy": self.remedy} if self.remedy else found
