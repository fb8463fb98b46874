"""Keeps an error that is meant to be final from being taken for a passing one.

OpenCode tries a request again, five times with growing pauses, if the text of an error says what an overloaded server
or a broken line would say, whatever its status; or it shortens the session, if it speaks of too long a prompt. What a
user or a tool has said may hold such words, and errors quote it.
"""

import re

_ALARMING = re.compile(
    r"""
      429 | 5\d\d
    | rate [\s_-] (?:limit\w* | increased) | too [\s_-] (?:many | long | large) | overload\w* | \w*unavailable
    | \w*exhausted | at\ capacity | try\ (?:again | your) | retry\ your | free\w*limit\w*
    | (?:internal | server | network | connection | returned) [\s_-]+ (?:server\ )? error
    | terminated | fetch\ failed | failed\ to\ fetch | upstream\ connect | socket | reset\ before
    | connection\ (?:refused | lost | was) | getaddrinfo | enotfound | eai_again | econn\w+
    | e?time (?:d?\ ? | d[\s_-]) out
    | exceed\w* | \w*context\w* | \w*tokens? | maximum | reduce\ the\ length
    """,
    re.IGNORECASE | re.VERBOSE,
)


def final(message: str) -> str:
    """The message without such words."""
    return _ALARMING.sub("…", message)
