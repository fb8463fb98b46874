"""What a bridge between a client and a daemon remembers, so that the client outlives a restart of the daemon."""

import contextlib
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from rookery.wire.jsonrpc import (
    CONNECTION_CLOSED,
    Id,
    Message,
    Notification,
    Request,
    Response,
    WireError,
    decode,
    encode_notification,
    encode_request,
    object_of,
    text_of,
)
from rookery.wire.session import cancelled_id

_INITIALIZED = "notifications/initialized"
_LISTS = ("tools", "resources", "prompts")
_STOPPED = WireError(
    CONNECTION_CLOSED, "the daemon of Rookery has stopped; whether the request was carried out is not known"
)


class Bridge:
    """Both sides' messages pass unchanged. `pending` are the client's requests that are not answered yet."""

    def __init__(self) -> None:
        self.pending: dict[Id, Request] = {}
        self._asked: set[Id] = set()
        self._hello: Request | None = None
        self._initialized = False
        # What the client has set up since: its log level, and the resources that it follows.
        self._kept: dict[tuple[str, str], Request] = {}
        self._replayed: set[Id] = set()
        self._replays = 0

    def from_client(self, messages: Sequence[Message]) -> bool:
        """What one frame of the client's says; whether it is for the daemon."""
        for message in messages:
            self._note(message)
        only = messages[0]
        if len(messages) > 1 or not isinstance(only, Response):
            return True
        # The daemon that asked may be gone, and another one may have asked something else under the same id.
        wanted = only.id in self._asked
        self._asked.discard(only.id)
        return wanted

    def from_daemon(self, data: bytes) -> list[bytes]:
        """What to pass on to the client. WireError if this is no message."""
        messages = decode(data)
        for message in messages:
            if isinstance(message, Request):
                self._asked.add(message.id)
            elif isinstance(message, Response):
                if message.id in self._replayed:
                    self._replayed.discard(message.id)
                    return _lists_changed(message)
                self._answered(message)
        return [data]

    def lost(self) -> list[bytes]:
        """The daemon is gone: what to tell the client. The handshake alone stays pending: it does no harm twice."""
        hello = self._hello if self._hello is not None and self._hello.id in self.pending else None
        told = [
            encode_notification(
                "notifications/cancelled", msgspec.json.encode({"requestId": id_, "reason": "the daemon has stopped"})
            )
            for id_ in self._asked
        ]
        told += [_STOPPED.encoded(id_) for id_, request in self.pending.items() if request is not hello]
        self.pending = {hello.id: hello} if hello is not None else {}
        self._asked.clear()
        self._replayed.clear()
        return told

    def restored(self) -> list[bytes]:
        """What to say to a new daemon before anything else, so that it knows the client as the old one did."""
        if self._hello is None:
            return []
        if self._hello.id in self.pending:
            return [encode_request(self._hello.id, self._hello.method, self._hello.params)]
        said = [self._again(self._hello)]
        if self._initialized:
            said.append(encode_notification(_INITIALIZED, b"{}"))
        return [*said, *(self._again(request) for request in self._kept.values())]

    def refused(self, error: WireError) -> list[bytes]:
        """No daemon can be reached: the errors for all that is pending."""
        if self._hello is not None and self._hello.id in self.pending:
            self._hello = None
        told = [error.encoded(id_) for id_ in self.pending]
        self.pending.clear()
        return told

    def _note(self, message: Message) -> None:
        if isinstance(message, Request):
            self.pending[message.id] = message
            if message.method == "initialize":
                self._hello, self._initialized = message, False
                self._kept.clear()
        elif isinstance(message, Notification) and message.method == _INITIALIZED:
            self._initialized = True
        elif isinstance(message, Notification) and message.method == "notifications/cancelled":
            with contextlib.suppress(WireError):
                if (id_ := cancelled_id(message)) is not None:
                    # No answer will come.
                    self.pending.pop(id_, None)

    def _answered(self, answer: Response) -> None:
        request = self.pending.pop(answer.id, None)
        if request is None or answer.error is not None:
            return
        if request.method == "logging/setLevel":
            self._kept[request.method, ""] = request
        elif request.method == "resources/subscribe":
            self._kept[request.method, _uri(request)] = request
        elif request.method == "resources/unsubscribe":
            self._kept.pop(("resources/subscribe", _uri(request)), None)

    def _again(self, request: Request) -> bytes:
        self._replays += 1
        id_ = f"rookery-bridge-{self._replays}"
        self._replayed.add(id_)
        return encode_request(id_, request.method, request.params)


def _uri(request: Request) -> str:
    return text_of(object_of(request.params), "uri")


def _lists_changed(answer: Response) -> list[bytes]:
    """What the client knows of lists may be old: it is told so, for those that the daemon says may change."""
    if answer.error is not None:
        return []
    offered: Any = msgspec.json.decode(answer.result)
    found: Any = cast("dict[str, Any]", offered).get("capabilities") if isinstance(offered, dict) else None
    can = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    changing = [one for one in _LISTS if isinstance(can.get(one), dict) and can[one].get("listChanged")]
    return [encode_notification(f"notifications/{one}/list_changed", b"{}") for one in changing]
