"""Regular expressions of callers: none of them can keep the others waiting (docs/decisions/0014-patterns.md)."""

import asyncio
import functools
import importlib
from typing import Any

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError

LONGEST = 1000
_META = frozenset(r"\.+*?()|[]{}^$")
# What a compiled pattern may take. With more, compiling alone would take too long.
_BYTES = 128 * 1024
# A search takes at most (size of the pattern) x (bytes of the text) steps, of which a core does about 10**8 a second.
_AT_ONCE = 300_000
_MOST = 10**8
# All searches of one wait together.
_SECONDS = 5.0


class Patterns:
    """Those of all callers."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        # One at a time of those that take long, so that they take one core at most.
        self._slow = asyncio.Semaphore(1)

    def compile(self, pattern: str) -> "Pattern":
        return Pattern(pattern, self._slow, self._clock)


class Pattern:
    """One pattern of one wait. Raises RookeryError where it is none, or takes too long."""

    def __init__(self, pattern: str, slow: asyncio.Semaphore, clock: Clock) -> None:
        self.pattern = pattern
        # Most are some words as they are, which Python finds many times faster.
        self._plain = _META.isdisjoint(pattern)
        self._compiled = _compiled(pattern)
        self._size: int = self._compiled.programsize
        self._slow, self._clock, self._spent = slow, clock, 0.0

    async def search(self, text: str) -> str | None:
        """The first text that fits."""
        if self._plain:
            return self.pattern if self.pattern in text else None
        steps = self._size * (len(text) + 1)
        if steps <= _AT_ONCE:
            return self._search(text)
        if steps > _MOST or self._spent > _SECONDS:
            message = f"the pattern {self.pattern!r} takes too long on a text as long as this"
            raise RookeryError("invalid-input", message, "simplify it, or give fewer repeats")
        async with self._slow:
            began = self._clock.monotonic()
            try:
                return await asyncio.to_thread(self._search, text)
            finally:
                self._spent += self._clock.monotonic() - began

    def _search(self, text: str) -> str | None:
        # A character that is none could not be encoded.
        found = self._compiled.search(text.encode("utf-8", "replace"))
        return found.group().decode("utf-8", "replace") if found is not None else None


def _compiled(pattern: str) -> Any:
    if not pattern or len(pattern) > LONGEST:
        raise RookeryError("invalid-input", f"a pattern has 1 to {LONGEST} characters", "shorten it")
    re2, options = _engine()
    try:
        # Of bytes: in a str each place would be counted out, in Python.
        return re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        said = error.args[0].decode("utf-8", "replace") if isinstance(error, re2.error) else str(error)
        remedy = "patterns are those of RE2: without look-around and back references"
        raise RookeryError("invalid-input", f"{pattern!r} is not a pattern that can be used: {said}", remedy) from None


@functools.cache
def _engine() -> tuple[Any, Any]:
    """Loaded when the first pattern comes; it has no types."""
    re2: Any = importlib.import_module("re2")
    options = re2.Options()
    options.max_mem, options.log_errors = _BYTES, False
    return re2, options
