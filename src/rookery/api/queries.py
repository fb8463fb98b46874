"""What the query of a REST request says."""

from starlette.requests import Request

from rookery.system.errors import RookeryError

_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def query(request: Request, name: str) -> str | None:
    """A value that is given and not empty."""
    return request.query_params.get(name) or None


def flag(request: Request, name: str) -> bool:
    given = request.query_params.get(name, "false")
    if given not in _FLAGS:
        raise RookeryError("invalid-input", f"{name}={given[:40]!r} is neither true nor false", f"send {name}=true")
    return _FLAGS[given]
