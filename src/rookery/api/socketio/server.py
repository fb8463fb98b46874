"""The configuration of the Socket.IO library's server: limited, without logging, and not listening by itself."""

import importlib
import logging
from typing import Any, cast

import msgspec

# The largest message, on either transport.
MESSAGE_BYTES = 1_000_000
_EVENT = 2
_BINARY_EVENT = 5
_BINARY_ACK = 6
_RESERVED = ("connect", "disconnect")


def make_server() -> Any:
    """Import the library and return its server. The import is slow: call this function in a thread."""
    library: Any = importlib.import_module("socketio")
    logger = logging.getLogger("rookery.socketio.library")
    # The library logs every packet, and reports errors of clients as its own. Rookery logs events itself.
    logger.setLevel(logging.CRITICAL)
    return library.AsyncServer(
        async_mode="asgi",
        serializer=_make_packet_class(importlib.import_module("socketio.packet").Packet),
        json=_Json,
        logger=logger,
        engineio_logger=logger,
        # The authentication has already checked the origin.
        cors_allowed_origins=[],
        http_compression=False,
        max_http_buffer_size=MESSAGE_BYTES,
        namespaces=["/"],
    )


def refuse_connection(message: str, error: dict[str, Any]) -> Exception:
    """Return the exception that a handler of `connect` raises to refuse a client."""
    library: Any = importlib.import_module("socketio.exceptions")
    return library.ConnectionRefusedError(message, error)


class _Json:
    """JSON with the interface of the standard library's module, as the library expects."""

    @staticmethod
    def loads(text: str, **_: object) -> Any:
        try:
            return msgspec.json.decode(text)
        except RecursionError:
            raise ValueError("the message is nested too deeply") from None

    @staticmethod
    def dumps(value: object, **_: object) -> str:
        return msgspec.json.encode(value).decode()


def _make_packet_class(base: Any) -> Any:
    """Return a subclass of the library's packet that validates incoming packets before the library processes them."""

    def decode(packet: Any, encoded: Any) -> int:
        base.decode(packet, encoded)
        # Binary attachments are not kept: no event of Rookery uses them, and the client itself declares their number.
        if packet.packet_type in (_BINARY_EVENT, _BINARY_ACK):
            packet.packet_type -= _BINARY_EVENT - _EVENT
        if packet.packet_type == _EVENT and not _is_event(packet.data):
            raise ValueError("the message is not an event")
        return 0

    return type("Packet", (base,), {"uses_binary_events": False, "decode": decode})


def _is_event(data: object) -> bool:
    """Return whether `data` is an event.

    The library would call its own handlers for the names of its own events.
    """
    items = cast(list[object], data) if isinstance(data, list) else []
    return bool(items) and isinstance(items[0], str) and items[0] not in _RESERVED
