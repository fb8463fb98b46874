"""Tells a server that is slow from one that is stuck, and ends the latter: the next use starts it anew."""

from collections.abc import Awaitable, Callable

from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.wire.client import Client
from rookery.wire.jsonrpc import WireError

Fail = Callable[[Client, RookeryError], Awaitable[None]]


class Liveness:
    """`busy` tells whether other calls are under way: what works on those may have no time for a question."""

    def __init__(self, tasks: TaskSet, busy: Callable[[], bool], fail: Fail) -> None:
        self._tasks, self._busy, self._fail = tasks, busy, fail
        self._looking = False

    def failed(self, error: RookeryError, client: Client | None) -> None:
        """A call came to this; if it has had its time and got no answer, the server is asked whether it is there."""
        if error.code == "timeout" and client is not None and not self._looking:
            self._looking = True
            self._tasks.start(self._look(client), "liveness")

    async def _look(self, client: Client) -> None:
        seconds = client.timeouts.catalog
        asked = "server/discover" if client.modern else "ping"
        try:
            await client.request(asked, {}, seconds=seconds, what="liveness")
        except WireError:
            return  # an answer all the same
        except RookeryError as error:
            if error.code == "timeout" and not self._busy():
                told = f"it is stuck: a call timed out, and it did not answer {asked} within {seconds:g} s either"
                await self._fail(client, RookeryError("upstream-failed", told))
        finally:
            self._looking = False
