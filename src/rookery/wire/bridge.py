"""State of a stdio bridge between one client and the daemon.

The bridge records what the client has set up, so that the client outlives a restart of the daemon.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from rookery.wire.protocol.messages import (
    CONNECTION_CLOSED,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    WireError,
    decode_messages,
    decode_object,
    decode_text,
    encode_notification,
    encode_request,
)
from rookery.wire.server.session import decode_cancelled_id

_INITIALIZED = "notifications/initialized"
_LISTS = ("tools", "resources", "prompts")
_DAEMON_STOPPED_ERROR = WireError(
    CONNECTION_CLOSED, "the Rookery daemon has stopped; it is unknown whether the request was executed"
)


class Bridge:
    """Tracks the messages of both sides, which pass unchanged, and restores the client's state at a new daemon.

    `pending` holds the client's requests that have no response yet.
    """

    def __init__(self) -> None:
        self.pending: dict[RequestId, Request] = {}
        self._daemon_requests: set[RequestId] = set()
        self._handshake: Request | None = None
        self._initialized = False
        # Requests that set up state which outlives them: the log level and the resource subscriptions.
        self._setup_requests: dict[tuple[str, str], Request] = {}
        self._replayed_ids: set[RequestId] = set()
        self._replay_count = 0

    def on_client_messages(self, messages: Sequence[Message]) -> bool:
        """Record the messages of one frame from the client. Return whether to send the frame to the daemon."""
        for message in messages:
            self._record(message)
        first = messages[0]
        if len(messages) > 1 or not isinstance(first, Response):
            return True
        # The daemon that sent the request may be gone, and a new one may have used the same id for another request.
        expected = first.id in self._daemon_requests
        self._daemon_requests.discard(first.id)
        return expected

    def on_daemon_frame(self, data: bytes) -> list[bytes]:
        """Return the frames to send to the client. Raise WireError if `data` is not a message."""
        messages = decode_messages(data)
        for message in messages:
            if isinstance(message, Request):
                self._daemon_requests.add(message.id)
            elif isinstance(message, Response):
                if message.id in self._replayed_ids:
                    self._replayed_ids.discard(message.id)
                    return _lists_changed(message)
                self._on_response(message)
        return [data]

    def on_daemon_lost(self) -> list[bytes]:
        """Handle the loss of the daemon, and return the messages to send to the client.

        The handshake alone stays pending: to send it twice does no harm.
        """
        handshake = self._handshake if self._handshake is not None and self._handshake.id in self.pending else None
        messages = [
            encode_notification(
                "notifications/cancelled", msgspec.json.encode({"requestId": id_, "reason": "the daemon has stopped"})
            )
            for id_ in self._daemon_requests
        ]
        messages += [
            _DAEMON_STOPPED_ERROR.encode(id_) for id_, request in self.pending.items() if request is not handshake
        ]
        self.pending = {handshake.id: handshake} if handshake is not None else {}
        self._daemon_requests.clear()
        self._replayed_ids.clear()
        return messages

    def make_restore_messages(self) -> list[bytes]:
        """Return the messages that a new daemon receives first, to restore the client's state there."""
        if self._handshake is None:
            return []
        if self._handshake.id in self.pending:
            return [encode_request(self._handshake.id, self._handshake.method, self._handshake.params)]
        messages = [self._make_replay(self._handshake)]
        if self._initialized:
            messages.append(encode_notification(_INITIALIZED, b"{}"))
        return [*messages, *(self._make_replay(request) for request in self._setup_requests.values())]

    def fail_pending(self, error: WireError) -> list[bytes]:
        """Return an error response for every pending request, because no daemon can be reached."""
        if self._handshake is not None and self._handshake.id in self.pending:
            self._handshake = None
        responses = [error.encode(id_) for id_ in self.pending]
        self.pending.clear()
        return responses

    def _record(self, message: Message) -> None:
        if isinstance(message, Request):
            self.pending[message.id] = message
            if message.method == "initialize":
                self._handshake = message
                self._initialized = False
                self._setup_requests.clear()
        elif isinstance(message, Notification) and message.method == _INITIALIZED:
            self._initialized = True
        elif isinstance(message, Notification) and message.method == "notifications/cancelled":
            with contextlib.suppress(WireError):
                if (id_ := decode_cancelled_id(message)) is not None:
                    # A cancelled request gets no response.
                    self.pending.pop(id_, None)

    def _on_response(self, response: Response) -> None:
        request = self.pending.pop(response.id, None)
        if request is None or response.error is not None:
            return
        if request.method == "logging/setLevel":
            self._setup_requests[request.method, ""] = request
        elif request.method == "resources/subscribe":
            self._setup_requests[request.method, _uri(request)] = request
        elif request.method == "resources/unsubscribe":
            self._setup_requests.pop(("resources/subscribe", _uri(request)), None)

    def _make_replay(self, request: Request) -> bytes:
        self._replay_count += 1
        id_ = f"rookery-bridge-{self._replay_count}"
        self._replayed_ids.add(id_)
        return encode_request(id_, request.method, request.params)


def _uri(request: Request) -> str:
    return decode_text(decode_object(request.params), "uri")


def _lists_changed(response: Response) -> list[bytes]:
    """Return a list_changed notification for each list that the new daemon says may change.

    The lists that the client has cached may be outdated after the restart.
    """
    if response.error is not None:
        return []
    result: Any = msgspec.json.decode(response.result)
    offered: Any = cast("dict[str, Any]", result).get("capabilities") if isinstance(result, dict) else None
    capabilities = cast("dict[str, Any]", offered) if isinstance(offered, dict) else {}
    kinds = [
        kind for kind in _LISTS if isinstance(capabilities.get(kind), dict) and capabilities[kind].get("listChanged")
    ]
    return [encode_notification(f"notifications/{kind}/list_changed", b"{}") for kind in kinds]
