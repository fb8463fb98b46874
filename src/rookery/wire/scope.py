"""The head of a request as ASGI has it."""

from typing import Any
from urllib.parse import unquote

from starlette.types import Scope

from rookery.wire.head import Head

_ASGI = {"version": "3.0", "spec_version": "2.3"}


def scope_of(
    method: str, version: str, path: str, raw_path: bytes, query: bytes, head: Head, state: dict[str, Any]
) -> Scope:
    return {
        "type": "http",
        "asgi": _ASGI,
        "http_version": version,
        "method": method,
        "scheme": "http",
        "path": unquote(path) if "%" in path else path,
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": head,
        "client": None,
        "server": None,
        "state": state,
    }
