"""Wildcards as OpenCode has them: `*` is any text, `?` any one character, and the whole name has to match."""

import re
from functools import lru_cache


def matches(pattern: str, name: str) -> bool:
    """Whether `pattern` covers `name`. A backslash counts as a slash, and ` *` at the end may be missing."""
    return _compiled(pattern).fullmatch(name.replace("\\", "/")) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    pattern = pattern.replace("\\", "/")
    ways = [pattern, pattern[:-2]] if pattern.endswith(" *") else [pattern]
    return re.compile("|".join(map(_expression, ways)), re.DOTALL)


def _expression(pattern: str) -> str:
    """What stands between two stars is looked for once, from the left: nothing is ever tried a second time."""
    first, *rest = ["".join("." if char == "?" else re.escape(char) for char in part) for part in pattern.split("*")]
    if not rest:
        return first
    return first + "".join(f"(?>.*?{part})" for part in rest[:-1] if part) + ".*" + rest[-1]
