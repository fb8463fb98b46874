"""What is told of one server: in errors, in its status and in the log, and nowhere with its secrets in it."""

import logging
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from rookery.system.errors import RookeryError
from rookery.upstreams.definition import Definition
from rookery.upstreams.showing import redactor_for

logger = logging.getLogger("rookery.upstreams")

_MOST_WARNINGS = 20


class Voice:
    """Whatever a server says of itself, on stderr or in an answer, may have in it what it was given."""

    def __init__(self, definition: Definition) -> None:
        self.name = definition.name
        self.clean = redactor_for(definition).clean
        # The last things that were wrong with what it said.
        self.warnings: deque[str] = deque(maxlen=_MOST_WARNINGS)

    def warn(self, words: str) -> None:
        self.warnings.append(self.clean(words))
        logger.warning("%s: %s", self.name, self.warnings[-1])

    @contextmanager
    def errors(self, before: str = "") -> Generator[None]:
        """Failures in here leave it without secrets, with these words before them."""
        try:
            yield
        except RookeryError as error:
            raise self.cleaned(error, before) from None

    def cleaned(self, error: RookeryError, before: str = "") -> RookeryError:
        return RookeryError(error.code, self.clean(before + error.message), self.clean(error.remedy))
