"""Requests to the daemon's REST routes over its Unix socket: typed answers, and its errors as `RookeryError`."""

import asyncio
import socket
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from rookery.cli import link
from rookery.system.errors import RookeryError
from rookery.wire.http_client import HttpClient
from rookery.wire.http_request import Requests

T = TypeVar("T")

# The host that stands in requests; on a Unix socket it means nothing.
URL = "http://rookery"
# Git takes as long as a repository is large; the daemon ends what takes longer.
_SECONDS = 600.0


class Line:
    """One for a connection to Rookery: everything in it goes over the same sockets."""

    def __init__(self) -> None:
        self.http = HttpClient(_dial)

    async def ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: object = None,
        /,
        *,
        seconds: float = _SECONDS,
        **query: str | None,
    ) -> T:
        """The answer as `kind`. What waits for something says with `seconds` how long that may take at most."""
        chosen = {key: value for key, value in query.items() if value is not None}
        url = f"{URL}{path}" + (f"?{urlencode(chosen)}" if chosen else "")
        data = msgspec.json.encode(body) if body is not None else None
        requests = Requests(url, {"Content-Type": "application/json"} if data is not None else {})
        try:
            async with asyncio.timeout(seconds):
                with await self.http.send(
                    requests.place, requests.write(method, {}, data), harmless=method == "GET"
                ) as answer:
                    told = await answer.read()
        except TimeoutError:
            raise RookeryError("timeout", f"the daemon did not answer within {seconds:g} s", LOGS) from None
        except (OSError, ValueError) as error:
            raise RookeryError("daemon-unreachable", f"the daemon broke off: {error}", LOGS) from None
        if answer.status >= 400:
            raise error_of(told, answer.status)
        try:
            return msgspec.json.decode(told, type=kind, dec_hook=_made_of)
        except msgspec.DecodeError as error:
            told_wrong = f"the daemon's answer to {path} is not what was expected: {error}"
            raise RookeryError(
                "internal-error", told_wrong, "the daemon may be of another version: restart it"
            ) from None


LOGS = "see `rookery logs`"


def segment(text: str) -> str:
    """As one part of a path."""
    return quote(text, safe="@")


class _Told(msgspec.Struct):
    code: str
    message: str
    remedy: str = ""
    details: list[str] = []


class _Refused(msgspec.Struct):
    error: _Told


def error_of(answer: bytes, status: int) -> RookeryError:
    try:
        told = msgspec.json.decode(answer, type=_Refused).error
    except msgspec.DecodeError:
        return RookeryError("internal-error", f"the daemon answered {status}", LOGS)
    return RookeryError(told.code, told.message, told.remedy, told.details)


async def _dial(host: str, port: int) -> socket.socket:
    """Connected to the daemon, wherever it listens by now: it may have been started anew."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    try:
        path, pid = await asyncio.to_thread(link.address)
        await asyncio.get_running_loop().sock_connect(made, path)
        link.require_ours(made, pid)
    except (OSError, KeyError, TypeError):
        made.close()
        raise RookeryError(
            "daemon-unreachable", "no daemon is running", "start it with `rookery up -d`, or connect(start=True)"
        ) from None
    except BaseException:
        made.close()
        raise
    return made


def _made_of(kind: type[Any], told: Any) -> Any:
    """Paths, which JSON has as text."""
    return kind(told)


def as_given(**members: Any) -> dict[str, Any]:
    """The members of a body that were given."""
    return {name: value for name, value in members.items() if value is not None}
