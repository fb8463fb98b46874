"""Identifiers and secrets, all from the operating system's random source."""

import hashlib
import secrets
from pathlib import Path


def new_id() -> str:
    """A random id of 128 bits."""
    return secrets.token_hex(16)


def new_token() -> str:
    """A bearer token of 256 bits, prefixed so that leak scanners and people can recognise it."""
    return "rk_" + secrets.token_urlsafe(32)


def project_id(path: Path) -> str:
    """`<folder>-<first 8 hex of sha256(real path)>`."""
    real = path.resolve()
    return f"{real.name or 'root'}-{hashlib.sha256(str(real).encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
