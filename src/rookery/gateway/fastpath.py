"""Calls of tools on their way to a server: what they are sent with, and how they are counted."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from msgspec import Raw

from rookery.gateway import results
from rookery.gateway.member import Through
from rookery.gateway.rounds import Result, Work
from rookery.gateway.table import Target
from rookery.system import metrics
from rookery.system.errors import RookeryError
from rookery.wire.jsonrpc import WireError
from rookery.wire.provider import Call
from rookery.wire.sent import Sent

# Has a call answered by some work.
Begin = Callable[[Call, Work], Coroutine[Any, Any, Result]]

CALLS = metrics.counter("rookery_tool_calls_total", "Calls of tools through the gateway.", "server", "outcome")


def passed(call: Call, name: str | None, **more: Any) -> dict[str, Any]:
    """The parameters of a call, with the name that its provider knows."""
    params: dict[str, Any] = dict(call.params)
    params.pop("_meta", None)
    if name is not None:
        params["uri" if call.method == "resources/read" else "name"] = name
    if more:
        params |= more
    return params


def denied(target: Target, why: str) -> Mapping[str, Any]:
    CALLS.add(target.member.name, "denied")
    return results.failed_by(RookeryError("tool-denied", why), structured=target.tells_errors)


async def counted(target: Target, work: Awaitable[Raw | Mapping[str, Any]]) -> Raw | Mapping[str, Any]:
    """The result; a failure of ours is one too."""
    server = target.member.name
    try:
        result = await work
    except RookeryError as error:
        CALLS.add(server, error.code)
        return results.failed_by(error, structured=target.tells_errors)
    except WireError:
        CALLS.add(server, "error")
        raise
    except asyncio.CancelledError:
        CALLS.add(server, "cancelled")
        raise
    CALLS.add(server, "answered")
    return result


class ToolWay:
    """The way to one tool of a view. `holds` tells whether the view still shows it so, `begin` begins a call there."""

    __slots__ = ("_begin", "_holds", "_passage", "_server", "_target", "rounds", "send")

    def __init__(self, target: Target, passage: Through, holds: Callable[[], bool], begin: Begin) -> None:
        self.rounds = passage.rounds
        self.send = passage.send
        self._target = target
        self._server = target.member.name
        self._passage = passage
        self._holds = holds
        self._begin = begin

    def holds(self) -> bool:
        return self._passage.holds() and self._holds()

    def answered(self) -> None:
        CALLS.add(self._server, "answered")
        self._passage.answered()

    def handle(self, call: Call, sent: Sent) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]:
        target, passage = self._target, self._passage
        return self._begin(call, lambda one: counted(target, passage.handle(one, passed(one, target.name), sent)))
