"""The Socket.IO library's server as we want it: bounded, quiet, and with no door to the world of its own."""

import importlib
import logging
from typing import Any, cast

import msgspec

# The largest message, on either transport.
MESSAGE_BYTES = 1_000_000
_EVENT, _BINARY_EVENT, _BINARY_ACK = 2, 5, 6
_RESERVED = ("connect", "disconnect")


def make_server() -> Any:
    """Imports the library, which takes its time: call it in a thread."""
    library: Any = importlib.import_module("socketio")
    logger = logging.getLogger("rookery.socketio.library")
    # It tells of every packet, and takes a client's mistakes for its own. What we make of events we log ourselves.
    logger.setLevel(logging.CRITICAL)
    return library.AsyncServer(
        async_mode="asgi",
        serializer=_packets(importlib.import_module("socketio.packet").Packet),
        json=_Json,
        logger=logger,
        engineio_logger=logger,
        # The gate has looked at the origin.
        cors_allowed_origins=[],
        http_compression=False,
        max_http_buffer_size=MESSAGE_BYTES,
        namespaces=["/"],
    )


def refused(message: str, error: dict[str, Any]) -> Exception:
    """What a handler of `connect` raises to turn a client away."""
    library: Any = importlib.import_module("socketio.exceptions")
    return library.ConnectionRefusedError(message, error)


class _Json:
    """As the library calls the standard library's."""

    @staticmethod
    def loads(text: str, **_: object) -> Any:
        try:
            return msgspec.json.decode(text)
        except RecursionError:
            raise ValueError("this is nested too deeply") from None

    @staticmethod
    def dumps(value: object, **_: object) -> str:
        return msgspec.json.encode(value).decode()


def _packets(base: Any) -> Any:
    """The library's packets; what comes in is looked at before the library acts on it."""

    def decode(packet: Any, encoded: Any) -> int:
        base.decode(packet, encoded)
        # Bytes beside an event are not kept: none of ours takes any, and a client says itself how many there are.
        if packet.packet_type in (_BINARY_EVENT, _BINARY_ACK):
            packet.packet_type -= _BINARY_EVENT - _EVENT
        if packet.packet_type == _EVENT and not _is_event(packet.data):
            raise ValueError("this is no event")
        return 0

    return type("Packet", (base,), {"uses_binary_events": False, "decode": decode})


def _is_event(data: object) -> bool:
    """With the name of one of its own events the library would call what is meant for itself."""
    words = cast(list[object], data) if isinstance(data, list) else []
    return bool(words) and isinstance(words[0], str) and words[0] not in _RESERVED
