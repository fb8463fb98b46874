"""What a REST request says beside its body, and how long its client waits."""

import asyncio
import math

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


def number(request: Request, name: str) -> float | None:
    given = query(request, name)
    try:
        found = float(given) if given is not None else None
    except ValueError:
        found = math.nan
    if found is not None and not math.isfinite(found):
        raise RookeryError("invalid-input", f"{name}={(given or '')[:40]!r} is not a number", f"send {name}=1")
    return found


def ends_with_client(request: Request) -> None:
    """What a client waits for is given up when the client has gone."""
    task = asyncio.current_task()
    assert task is not None
    request.scope["extensions"]["rookery.on_lost"](task.cancel)
