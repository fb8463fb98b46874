"""What a view reports about each call, for an audit."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Raw

from rookery.gateway.conversations import ALL_CONVERSATIONS
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.wire.protocol.messages import WireError
from rookery.wire.protocol.provider import Call, InputNeeded

CallEvent = Literal["call", "prompt", "resource", "ask"]
CallVerdict = Literal["allowed", "denied"]

# The outcome of a call that has a result, whatever its content.
ANSWERED = "answered"
_MAX_NAME_CHARS = 256


class CallOrigin(msgspec.Struct, frozen=True, gc=False):
    """Who calls what. Calls that differ only in their arguments share it; `tool` is the name that its server uses."""

    principal: str
    workspace: str | None
    session: str | None
    server: str | None
    tool: str | None


class CallRecorder(Protocol):
    """Takes the records of calls. Both methods return at once, and never raise."""

    def record_answered(self, origin: CallOrigin, started: float, arguments: Raw, result_bytes: int) -> None:
        """Record an allowed tool call that has its result; `started` is a time of the monotonic clock."""
        ...

    def record_call(
        self,
        event: CallEvent,
        verdict: CallVerdict,
        outcome: str,
        origin: CallOrigin,
        started: float,
        arguments: Raw | None = None,
        result_bytes: int | None = None,
    ) -> None:
        """Record any call, or a question to the user about one."""
        ...


class NoRecorder:
    """Records nothing."""

    def record_answered(self, origin: CallOrigin, started: float, arguments: Raw, result_bytes: int) -> None:
        """Do nothing."""

    def record_call(
        self,
        event: CallEvent,
        verdict: CallVerdict,
        outcome: str,
        origin: CallOrigin,
        started: float,
        arguments: Raw | None = None,
        result_bytes: int | None = None,
    ) -> None:
        """Do nothing."""


NO_RECORDER = NoRecorder()


class ViewAudit:
    """Records the calls of one view."""

    def __init__(self, recorder: CallRecorder, workspace: str | None) -> None:
        self.recorder = recorder
        self._workspace = workspace

    def origin(self, call: Call, server: str | None, tool: str | None) -> CallOrigin:
        """Return the origin of a call. Names that a client made up are cut.

        The session of a call that names the session of an agent is that one, otherwise that of the transport.
        """
        session = call.conversation if call.conversation not in (None, ALL_CONVERSATIONS) else call.session
        name = tool if tool is None or len(tool) <= _MAX_NAME_CHARS else f"{tool[:_MAX_NAME_CHARS]}…"
        return CallOrigin(call.owner, self._workspace, session, server, name)

    def record(
        self,
        event: CallEvent,
        verdict: CallVerdict,
        outcome: str,
        call: Call,
        server: str | None,
        tool: str | None,
        started: float | None = None,
    ) -> None:
        """Record a call that was not forwarded, or a question about one."""
        began = SYSTEM_CLOCK.monotonic() if started is None else started
        origin = self.origin(call, server, tool)
        self.recorder.record_call(event, verdict, outcome, origin, began, call.params.get("arguments"))

    async def follow(
        self,
        event: CallEvent,
        call: Call,
        server: str,
        name: str,
        work: Awaitable[Raw | Mapping[str, Any]],
        started: float | None = None,
    ) -> Raw | Mapping[str, Any]:
        """Await a call that was forwarded, return its result, and record how it ended."""
        began = SYSTEM_CLOCK.monotonic() if started is None else started
        outcome = "failed"
        size = None
        try:
            result = await work
            outcome = ANSWERED
            size = len(result if isinstance(result, Raw) else msgspec.json.encode(result))
            return result
        except InputNeeded:
            outcome = "asked"
            raise
        except RookeryError as error:
            outcome = error.code
            raise
        except WireError as error:
            outcome = f"error {error.code}"
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self.recorder.record_call(
                event, "allowed", outcome, self.origin(call, server, name), began, call.params.get("arguments"), size
            )
