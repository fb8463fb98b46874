"""Subscriptions to the changes of a server.

In the stateless era one standing request subscribes to everything, in the handshake era one request per resource.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.wire.client.inflight import ClientAnswer, HandleNotification
from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import (
    EMPTY_OBJECT,
    METHOD_NOT_FOUND,
    Notification,
    Params,
    RequestId,
    WireError,
    decode_object,
)
from rookery.wire.timing import compute_backoff

if TYPE_CHECKING:
    from rookery.wire.client.client import Client

logger = logging.getLogger("rookery.mcp.client")

# A subscription that ends sooner than this is reopened after a growing pause.
_STABLE_SECONDS = 10.0
_SUBSCRIPTION_KEY = revisions.META_SUBSCRIPTION.encode()


def decode_subscription_id(message: Notification) -> RequestId | None:
    """Return the id of the request whose subscription sent this notification, if there is one."""
    if _SUBSCRIPTION_KEY not in bytes(message.params):
        return None
    meta = decode_object(decode_object(message.params).get("_meta", EMPTY_OBJECT), "_meta")
    return msgspec.json.decode(meta.get(revisions.META_SUBSCRIPTION, msgspec.Raw(b"null")), type=int | str | None)


class ServerSubscriptions:
    """The subscriptions at one server: to changes of its lists always, and to the resources that are wanted."""

    def __init__(self, client: "Client", on_notification: HandleNotification) -> None:
        self._client = client
        self._on_notification = on_notification
        self._wanted: frozenset[str] = frozenset()
        self._subscribed: frozenset[str] = frozenset()
        self._current: _Subscription | None = None
        self._lock = asyncio.Lock()
        self._tasks = TaskSet("mcp watch")

    async def set(self, resources: frozenset[str]) -> None:
        """Subscribe to exactly these resources. Raise the error of the server or the connection."""
        self._wanted = resources
        async with self._lock:
            # A caller that waited for the lock applies the newest `_wanted`.
            await (self._listen() if self._client.modern else self._subscribe())

    def on_session_reopened(self) -> None:
        """Subscribe again in a new session, and report that changes may have been missed."""
        self._subscribed = frozenset()
        self.notify_all_changed()
        if self._wanted:
            self._tasks.start(self._set_again(), "again")

    def notify_all_changed(self) -> None:
        """Notify of a change of every list and resource: any change may have been missed."""
        for kind in self._kinds():
            self._on_notification(Notification(f"notifications/{kind}/list_changed", EMPTY_OBJECT))
        for uri in sorted(self._wanted):
            params = msgspec.Raw(msgspec.json.encode({"uri": uri}))
            self._on_notification(Notification("notifications/resources/updated", params))

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
        value: Any = self._client.capabilities.get(kind)
        return isinstance(value, Mapping) and value.get(feature) is True  # pyright: ignore[reportUnknownMemberType]

    # Modern era

    async def _listen(self) -> None:
        requested: dict[str, Any] = {f"{kind}ListChanged": True for kind in self._kinds()}
        if self._wanted and self._offers("resources", "subscribe"):
            requested["resourceSubscriptions"] = sorted(self._wanted)
        old = self._current
        if old is not None and old.wanted == requested and not old.task.done():
            return
        self._current = (
            _Subscription(self, self._client, self._on_notification, self._tasks, requested) if requested else None
        )
        try:
            if self._current is not None:
                await self._current.wait_acknowledged()
        except BaseException:
            # The old subscription stays.
            self._current = old
            raise
        if old is not None:
            old.task.cancel()
            await asyncio.wait([old.task])

    # Handshake era

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
        """Send a request for one resource. Return False if the server refuses it."""
        try:
            await self._client.request(
                method, {"uri": uri}, seconds=self._client.timeouts.catalog, timeout_name="catalog"
            )
        except WireError as error:
            logger.debug("%s of %s was refused: %s", method, uri, error.message)
            return False
        return True


class _Subscription:
    """One standing `subscriptions/listen`. When it breaks, it is reopened with growing pauses."""

    caller = ""

    def __init__(
        self,
        subscriptions: ServerSubscriptions,
        client: "Client",
        on_notification: HandleNotification,
        tasks: TaskSet,
        wanted: Mapping[str, Any],
    ) -> None:
        self.wanted = wanted
        self._subscriptions = subscriptions
        self._client = client
        self._on_notification = on_notification
        self._acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task = tasks.keep_running(self._run, "subscription")

    async def wait_acknowledged(self) -> None:
        """Wait until the server acknowledges the subscription for the first time. End it on failure."""
        seconds = self._client.timeouts.catalog
        try:
            async with asyncio.timeout(seconds):
                await self._acknowledged
        except TimeoutError:
            raise RookeryError(
                "timeout", f"subscriptions/listen: not acknowledged within the catalog timeout of {seconds:g} s"
            ) from None
        finally:
            if (
                not self._acknowledged.done()
                or self._acknowledged.cancelled()
                or self._acknowledged.exception() is not None
            ):
                self.task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            started = loop.time()
            try:
                await self._client.request(
                    "subscriptions/listen", {"notifications": self.wanted}, seconds=None, timeout_name="", listener=self
                )
                error: Exception = RookeryError(
                    "upstream-failed", "subscriptions/listen: the server ended the subscription"
                )
            except (WireError, RookeryError) as caught:
                error = caught
            if not self._acknowledged.done():
                self._acknowledged.set_exception(error)
            if self._acknowledged.exception() is not None or self._client.close_reason is not None:
                return
            failures = 1 if loop.time() - started >= _STABLE_SECONDS else failures + 1
            logger.debug("the subscription was interrupted: %s", error)
            await asyncio.sleep(compute_backoff(failures))

    # Listener of the request

    def on_progress(self, params: Params) -> None:
        """Ignore progress: a subscription has none."""

    def on_notification(self, message: Notification) -> None:
        if message.method != "notifications/subscriptions/acknowledged":
            self._on_notification(message)
        elif self._acknowledged.done():
            self._subscriptions.notify_all_changed()
        else:
            self._acknowledged.set_result(None)

    async def answer(self, method: str, params: Params) -> ClientAnswer:
        raise WireError(METHOD_NOT_FOUND, f"{method} is not supported on a subscription")
