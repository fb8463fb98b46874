"""What the SDK says of a failure, for people to read: briefly, and without what must stay secret."""

import re

_LONGEST = 300
# An answer that is repeated may be one that has tokens in it, as JSON or as a form.
_SECRET = re.compile(
    r"""\b((?:access_token|refresh_token|id_token|client_secret|code_verifier)["']?\s*[:=]\s*["']?)[^"'&\s,}]+"""
)


def brief(error: Exception) -> str:
    """Its first line; what was not understood, which may have tokens in it, is not in it."""
    said = str(error).partition("\n")[0].split("input_value")[0]
    return _SECRET.sub(r"\1***", said)[:_LONGEST]
