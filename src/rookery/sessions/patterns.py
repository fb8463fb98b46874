"""Search with regular expressions of callers, bounded so that none delays other callers.

See docs/decisions/0014-patterns.md.
"""

import asyncio
import functools
import importlib
from typing import Any

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError

MAX_PATTERN_CHARS = 1000
_META_CHARS = frozenset(r"\.+*?()|[]{}^$")
# The memory limit of a compiled pattern. A larger one would take too long to compile.
_MAX_PROGRAM_BYTES = 128 * 1024
# A search takes at most (size of the pattern) x (bytes of the text) steps. A core does about 10**8 steps per second.
_INLINE_STEPS = 300_000
_MAX_STEPS = 10**8
# The time limit for all searches of one wait together.
_MAX_SEARCH_SECONDS = 5.0


class PatternCompiler:
    """Compiles the patterns of all callers. They share one limit: at most one slow search runs at a time."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        # Slow searches run one at a time, so that they use one core at most.
        self._slow = asyncio.Semaphore(1)

    def compile(self, pattern: str) -> "BoundedPattern":
        return BoundedPattern(pattern, self._slow, self._clock)


class BoundedPattern:
    """The pattern of one wait. Raises RookeryError if the pattern is invalid or takes too long."""

    def __init__(self, pattern: str, slow: asyncio.Semaphore, clock: Clock) -> None:
        self.pattern = pattern
        # Most patterns are plain text, which Python's own search finds many times faster.
        self._plain = _META_CHARS.isdisjoint(pattern)
        self._compiled = _compile_pattern(pattern)
        self._size: int = self._compiled.programsize
        self._slow = slow
        self._clock = clock
        self._spent = 0.0

    async def search(self, text: str) -> str | None:
        """Return the first match, or None. Searches that may take long run in a thread."""
        if self._plain:
            return self.pattern if self.pattern in text else None
        steps = self._size * (len(text) + 1)
        if steps <= _INLINE_STEPS:
            return self._search(text)
        if steps > _MAX_STEPS or self._spent > _MAX_SEARCH_SECONDS:
            message = f"the pattern {self.pattern!r} takes too long on a text of this length"
            raise RookeryError("invalid-input", message, "simplify it, or use fewer repeats")
        async with self._slow:
            started_at = self._clock.monotonic()
            try:
                return await asyncio.to_thread(self._search, text)
            finally:
                self._spent += self._clock.monotonic() - started_at

    def _search(self, text: str) -> str | None:
        # Lone surrogates cannot be encoded.
        match = self._compiled.search(text.encode("utf-8", "replace"))
        return match.group().decode("utf-8", "replace") if match is not None else None


def _compile_pattern(pattern: str) -> Any:
    """Compile a pattern with RE2. Raise RookeryError if it is empty, too long or invalid."""
    if not pattern or len(pattern) > MAX_PATTERN_CHARS:
        raise RookeryError("invalid-input", f"a pattern must have 1 to {MAX_PATTERN_CHARS} characters", "shorten it")
    re2, options = _load_engine()
    try:
        # Compile bytes: for a str, RE2's wrapper would convert every offset in Python.
        return re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0].decode("utf-8", "replace") if isinstance(error, re2.error) else str(error)
        remedy = "use the syntax of RE2, which has no look-around and no back references"
        raise RookeryError("invalid-input", f"{pattern!r} is not a valid pattern: {reason}", remedy) from None


@functools.cache
def _load_engine() -> tuple[Any, Any]:
    """Return the RE2 module and its options. It has no types, and is imported with the first pattern."""
    re2: Any = importlib.import_module("re2")
    options = re2.Options()
    options.max_mem = _MAX_PROGRAM_BYTES
    options.log_errors = False
    return re2, options
