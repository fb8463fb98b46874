"""The fast path of tool calls to a server: their parameters, and how they are counted."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from msgspec import Raw

from rookery.gateway import results
from rookery.gateway.audit import ANSWERED, CallOrigin, ViewAudit
from rookery.gateway.elicitation import CallResult, CallWork
from rookery.gateway.provider import MemberFastPath, WithheldDefinition, describe_withheld
from rookery.gateway.table import Target
from rookery.system import metrics
from rookery.system.errors import RookeryError
from rookery.wire.client.inflight import PostedRequest
from rookery.wire.protocol.messages import WireError
from rookery.wire.protocol.provider import Call

# Starts a call whose result is that of the given work.
BeginCall = Callable[[Call, CallWork], Coroutine[Any, Any, CallResult]]

CALLS = metrics.counter("rookery_tool_calls_total", "Tool calls through the gateway.", "server", "outcome")


def provider_params(call: Call, name: str | None, **more: Any) -> dict[str, Any]:
    """Return the parameters of a call, with the name that its provider uses."""
    params: dict[str, Any] = dict(call.params)
    params.pop("_meta", None)
    if name is not None:
        params["uri" if call.method == "resources/read" else "name"] = name
    if more:
        params |= more
    return params


def deny_call(target: Target, why: str) -> Mapping[str, Any]:
    """Count a denied call, and return its error as a result."""
    CALLS.add(target.member.name, "denied")
    return results.tool_error(RookeryError("tool-denied", why), structured=target.allows_error_content)


def deny_withheld(server: str, withheld: WithheldDefinition) -> Mapping[str, Any]:
    """Count a call of a tool that is withheld, and return its error as a result."""
    CALLS.add(server, "withheld")
    return results.tool_error(describe_withheld(server, withheld))


async def count_call(target: Target, work: Awaitable[Raw | Mapping[str, Any]]) -> Raw | Mapping[str, Any]:
    """Return the result of a call, and count its outcome. A RookeryError becomes an error result."""
    server = target.member.name
    try:
        result = await work
    except RookeryError as error:
        CALLS.add(server, error.code)
        return results.tool_error(error, structured=target.allows_error_content)
    except WireError:
        CALLS.add(server, "error")
        raise
    except asyncio.CancelledError:
        CALLS.add(server, "cancelled")
        raise
    CALLS.add(server, ANSWERED)
    return result


class FastToolRoute:
    """The fast path to one tool of a view. `is_valid` returns whether it is still valid, `start_call` starts a call."""

    __slots__ = (
        *("_audit", "_is_valid", "_origin", "_record", "_route", "_server", "_start_call", "_target"),
        *("answers_questions", "send"),
    )

    def __init__(
        self,
        target: Target,
        route: MemberFastPath,
        is_valid: Callable[[], bool],
        start_call: BeginCall,
        audit: ViewAudit,
        origin: CallOrigin,
    ) -> None:
        self.answers_questions = route.answers_questions
        self.send = route.send
        self._target = target
        self._server = target.member.name
        self._route = route
        self._is_valid = is_valid
        self._start_call = start_call
        self._audit = audit
        self._record = audit.recorder.record_answered
        self._origin = origin

    def is_valid(self) -> bool:
        return self._route.is_valid() and self._is_valid()

    def on_result(self, sent: PostedRequest, arguments: Raw, result: Raw) -> None:
        CALLS.add(self._server, ANSWERED)
        self._record(self._origin, sent.started, arguments, len(result))
        self._route.on_result()

    def handle(self, call: Call, sent: PostedRequest) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]:
        return self._start_call(call, lambda inner_call: self._finish(inner_call, sent))

    def _finish(self, call: Call, sent: PostedRequest) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]:
        target = self._target
        work = self._route.handle(call, provider_params(call, target.name), sent)
        return count_call(target, self._audit.follow("call", call, target.member.name, target.name, work, sent.started))
