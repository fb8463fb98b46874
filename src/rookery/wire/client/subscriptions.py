"""Hearing of changes: a subscription that stands where the server is modern, single requests where it is not."""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.wire import revisions
from rookery.wire.asking import Answer, Notified
from rookery.wire.jsonrpc import EMPTY, METHOD_NOT_FOUND, Id, Notification, Params, WireError, object_of
from rookery.wire.pauses import pause

if TYPE_CHECKING:
    from rookery.wire.client import Client

logger = logging.getLogger("rookery.mcp.client")

# A subscription that ends sooner than this is not opened again at once.
_STOOD_SECONDS = 10.0
_TAG = revisions.META_SUBSCRIPTION.encode()


def subscription_of(message: Notification) -> Id | None:
    """The request that opened the subscription on which this comes."""
    if _TAG not in bytes(message.params):
        return None
    meta = object_of(object_of(message.params).get("_meta", EMPTY), "_meta")
    return msgspec.json.decode(meta.get(revisions.META_SUBSCRIPTION, msgspec.Raw(b"null")), type=int | str | None)


class Watch:
    """What one server is to tell of: changes of its lists always, and of the resources that are wanted."""

    def __init__(self, client: "Client", notified: Notified) -> None:
        self._client = client
        self._notified = notified
        self._wanted: frozenset[str] = frozenset()
        self._subscribed: frozenset[str] = frozenset()
        self._standing: _Subscription | None = None
        self._changing = asyncio.Lock()
        self._tasks = TaskSet("mcp watch")

    async def set(self, resources: frozenset[str]) -> None:
        """Raises what the server or the connection has against it."""
        self._wanted = resources
        async with self._changing:
            # Whoever waited here does what is wanted by now.
            await (self._listen() if self._client.modern else self._subscribe())

    def renewed(self) -> None:
        """The session is a new one, which knows of no subscription; and nobody told what changed in between."""
        self._subscribed = frozenset()
        self.missed()
        if self._wanted:
            self._tasks.start(self._set_again(), "again")

    def missed(self) -> None:
        """Anything may have changed while nobody told us."""
        for kind in self._kinds():
            self._notified(Notification(f"notifications/{kind}/list_changed", EMPTY))
        for uri in sorted(self._wanted):
            params = msgspec.Raw(msgspec.json.encode({"uri": uri}))
            self._notified(Notification("notifications/resources/updated", params))

    async def close(self) -> None:
        await self._tasks.close()

    async def _set_again(self) -> None:
        try:
            await self.set(self._wanted)
        except (WireError, RookeryError) as error:
            logger.warning("resources are no longer watched: %s", error)

    def _kinds(self) -> list[str]:
        return [kind for kind in ("tools", "prompts", "resources") if self._offers(kind, "listChanged")]

    def _offers(self, kind: str, feature: str) -> bool:
        found: Any = self._client.capabilities.get(kind)
        return isinstance(found, Mapping) and found.get(feature) is True  # pyright: ignore[reportUnknownMemberType]

    # ---- the modern era

    async def _listen(self) -> None:
        wanted: dict[str, Any] = {f"{kind}ListChanged": True for kind in self._kinds()}
        if self._wanted and self._offers("resources", "subscribe"):
            wanted["resourceSubscriptions"] = sorted(self._wanted)
        old = self._standing
        if old is not None and old.wanted == wanted and not old.task.done():
            return
        self._standing = _Subscription(self, self._client, self._notified, self._tasks, wanted) if wanted else None
        try:
            if self._standing is not None:
                await self._standing.acknowledged()
        except BaseException:
            # The old one goes on.
            self._standing = old
            raise
        if old is not None:
            old.task.cancel()
            await asyncio.wait([old.task])

    # ---- the handshake era

    async def _subscribe(self) -> None:
        if not self._offers("resources", "subscribe"):
            return
        for uri in sorted(self._wanted - self._subscribed):
            if await self._ask("resources/subscribe", uri):
                self._subscribed |= {uri}
        for uri in sorted(self._subscribed - self._wanted):
            self._subscribed -= {uri}
            await self._ask("resources/unsubscribe", uri)

    async def _ask(self, method: str, uri: str) -> bool:
        try:
            await self._client.request(method, {"uri": uri}, seconds=self._client.timeouts.catalog, what="catalog")
        except WireError as error:
            logger.debug("%s of %s was refused: %s", method, uri, error.message)
            return False
        return True


class _Subscription:
    """One standing `subscriptions/listen`; opened again, with growing pauses, when it breaks."""

    caller = ""

    def __init__(
        self, watch: Watch, client: "Client", notified: Notified, tasks: TaskSet, wanted: Mapping[str, Any]
    ) -> None:
        self.wanted = wanted
        self._watch = watch
        self._client = client
        self._notified = notified
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task = tasks.start(self._stand(), "subscription")

    async def acknowledged(self) -> None:
        """Returns when it stands for the first time; where it never does, it ends."""
        seconds = self._client.timeouts.catalog
        try:
            async with asyncio.timeout(seconds):
                await self._first
        except TimeoutError:
            raise RookeryError(
                "timeout", f"subscriptions/listen: not acknowledged within the catalog time-out of {seconds:g} s"
            ) from None
        finally:
            if not self._first.done() or self._first.cancelled() or self._first.exception() is not None:
                self.task.cancel()

    async def _stand(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            try:
                await self._client.request(
                    "subscriptions/listen", {"notifications": self.wanted}, seconds=None, what="", listener=self
                )
                error: Exception = RookeryError("upstream-failed", "subscriptions/listen: the server ended it")
            except (WireError, RookeryError) as caught:
                error = caught
            if not self._first.done():
                self._first.set_exception(error)
            if self._first.exception() is not None or self._client.gone is not None:
                return
            failures = 1 if loop.time() - began >= _STOOD_SECONDS else failures + 1
            logger.debug("the subscription broke: %s", error)
            await asyncio.sleep(pause(failures))

    # ---- as the listener of its request

    def progressed(self, params: Params) -> None:
        """It has none."""

    def notified(self, message: Notification) -> None:
        if message.method != "notifications/subscriptions/acknowledged":
            self._notified(message)
        elif self._first.done():
            self._watch.missed()
        else:
            self._first.set_result(None)

    async def answer(self, method: str, params: Params) -> Answer:
        raise WireError(METHOD_NOT_FOUND, f"a subscription does not answer {method}")
