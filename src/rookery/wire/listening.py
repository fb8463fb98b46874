"""A subscription of the modern era: acknowledged, then told every change that was asked for, until one side ends it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from rookery.wire import modern, revisions
from rookery.wire.jsonrpc import Id, Params, encode_notification
from rookery.wire.provider import Provider
from rookery.wire.streams import Beat, News, Sender, relay


class Subscription:
    """`news` ends it. One that asks for what cannot be had is an error at once."""

    def __init__(self, provider: Provider, id_: Id, params: Params) -> None:
        self.news = News()
        self._provider = provider
        self._tag = {"_meta": {revisions.META_SUBSCRIPTION: id_}}
        self._asked, self._honoured = modern.filter_of(params, provider)

    async def serve(self, send: Sender, still_here: Beat | None) -> Mapping[str, Any]:
        """Until it ends; its result."""
        changes = self._provider.changes
        self._tell("notifications/subscriptions/acknowledged", {"notifications": self._honoured})
        watched = set(self._asked.resource_subscriptions)
        changes.watch(*watched)
        stop = changes.listen(self._changed)
        try:
            await relay(self.news, send, still_here)
            return self._tag
        finally:
            stop()
            changes.unwatch(*watched)

    def _changed(self, method: str, uri: str | None) -> None:
        if self._asked.wants(method, uri):
            self._tell(method, {"uri": uri} if uri is not None else {})

    def _tell(self, method: str, params: Mapping[str, Any]) -> None:
        self.news.push(encode_notification(method, msgspec.json.encode({**params, **self._tag})))
