"""How the calls of one view begin: at once, in rounds where a modern client may be asked, or where it left off."""

from collections.abc import Callable, Coroutine
from typing import Any

from rookery.gateway import results
from rookery.gateway.member import Passages
from rookery.gateway.parking import Parking
from rookery.gateway.rounds import Result, Work
from rookery.gateway.table import Table, Target
from rookery.system.errors import RookeryError
from rookery.wire import revisions
from rookery.wire.jsonrpc import text_of
from rookery.wire.provider import Call


class Turns:
    """`table` is what the view shows to clients without a session, as modern ones are."""

    def __init__(self, parking: Parking, table: Callable[[], Table]) -> None:
        self.seconds = parking.seconds
        self.left = parking.leave
        self._parking = parking
        self._table = table

    def begin(self, call: Call, work: Work) -> Coroutine[Any, Any, Result]:
        """Have a call answered by `work`, which may ask the client something."""
        if not call.client.modern or call.method not in revisions.MAY_ASK:
            return work(call)
        if self._parking.knows(call):
            return self._told(call, self._parking.go_on(self, call))
        return self._told(call, self._parking.begin(self, call, work)) if self._may_be_asked(call) else work(call)

    def close(self) -> None:
        self._parking.leave(self)

    def _may_be_asked(self, call: Call) -> bool:
        """A call that cannot be needs no task of its own."""
        if call.client.capabilities.keys().isdisjoint(revisions.CAPABILITY_OF.values()):
            return False
        if call.method != "tools/call":
            return True
        target = self._target(call)
        if target is None or target.verdict.action == "ask":
            return True
        return isinstance(target.member, Passages) and target.member.asks

    def _target(self, call: Call) -> Target | None:
        return self._table().tools.get(text_of(call.params, "name"))

    async def _told(self, call: Call, work: Coroutine[Any, Any, Result]) -> Result:
        """A failure of the rounds themselves, told as the method has it."""
        try:
            return await work
        except RookeryError as error:
            if call.method != "tools/call":
                raise results.wire_error_of(error) from None
            target = self._target(call)
            return results.failed_by(error, structured=target is None or target.tells_errors)
