"""JSON-RPC messages.

Only the envelope is decoded. Params, results and errors stay the bytes that were received.
"""

import itertools
import json
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
CONNECTION_CLOSED = -32000
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

RequestId = int | str
Params = dict[str, Raw]

MAX_BATCH = 100
MAX_DEPTH = 512
EMPTY_OBJECT = Raw(b"{}")

# Larger messages that the fast parser refuses are invalid: the lenient one needs twenty times their size in memory.
_MAX_LENIENT_BYTES = 2**20
# Values that are decoded as a whole are small. One of many empty lists takes twenty times its size in memory.
_MAX_VALUE_BYTES = 4 * 2**20
# So much of a message is checked for its depth at once, with functions of C that read all of it.
_DEPTH_SLICE_BYTES = 65_536
# So many brackets are counted at once. Only below a depth that no usual message has do they have to be added up.
_DEPTH_STEPS = 256
# Opening brackets become 1 and closing ones -1 as a signed byte. Of all other bytes only quotes are kept.
_BRACKET_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NEITHER_BRACKET_NOR_QUOTE = bytes(sorted(set(range(256)) - set(b'"[]{}')))


class WireError(Exception):
    """An error that is sent to the peer as a JSON-RPC error: a fault of the peer, or a refusal."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def encode(self, id_: RequestId | None) -> bytes:
        """Return the error response as bytes."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return msgspec.json.encode({"jsonrpc": "2.0", "id": id_, "error": error})


class Request(msgspec.Struct, frozen=True, gc=False):
    id: RequestId
    method: str
    params: Raw


class Notification(msgspec.Struct, frozen=True, gc=False):
    method: str
    params: Raw


class Response(msgspec.Struct, frozen=True, gc=False):
    """A response of either kind. `error` is None for a success, which `result` holds."""

    id: RequestId
    result: Raw
    error: Raw | None


Message = Request | Notification | Response


class _Envelope(msgspec.Struct, gc=False):
    jsonrpc: str | UnsetType = UNSET
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw = EMPTY_OBJECT
    result: Raw = Raw()
    error: Raw = Raw()


# A struct of optional members, because the decoder of a list would decode millions of items before it counts them.
_Batch = msgspec.defstruct(
    "_Batch",
    [(f"item_{number}", _Envelope | UnsetType, UNSET) for number in range(MAX_BATCH)],
    array_like=True,
    forbid_unknown_fields=True,
    gc=False,
)

_decoder = msgspec.json.Decoder(_Envelope)
_batch_decoder = msgspec.json.Decoder(_Batch)
_object_decoder = msgspec.json.Decoder(Params)
_text_decoder = msgspec.json.Decoder(str)
_any_decoder = msgspec.json.Decoder()


def decode_messages(data: bytes) -> list[Message]:
    """Return the messages in one body or line. The list has several items only for a batch."""
    batch = data.lstrip()[:1] == b"["
    check_message(data)
    try:
        envelopes = _decode_batch(data) if batch else [_decoder.decode(data)]
    except msgspec.ValidationError as error:
        raise WireError(INVALID_REQUEST, f"not a JSON-RPC 2.0 message: {error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        envelopes = _decode_leniently(data, batch, str(error))
    return [_make_message(envelope) for envelope in envelopes]


def check_message(data: bytes) -> None:
    """Raise WireError for invalid UTF-8 or deep nesting, which decoding the envelope alone does not detect."""
    if not data.isascii():
        _check_text(data)
    if len(data) > MAX_DEPTH and data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        _check_depth(data)


def _decode_batch(data: bytes) -> list[_Envelope]:
    try:
        items: tuple[Any, ...] = msgspec.structs.astuple(_batch_decoder.decode(data))
    except msgspec.ValidationError as error:
        if "at most length" not in str(error):
            raise
        items = ()
    envelopes = [item for item in items if item is not UNSET]
    if not envelopes:
        raise WireError(INVALID_REQUEST, f"a batch holds between 1 and {MAX_BATCH} messages")
    return envelopes


def _decode_leniently(data: bytes, batch: bool, reason: str) -> list[_Envelope]:
    """Re-encode valid JSON that the fast parser refuses, such as half a surrogate pair, and decode it again."""
    try:
        if len(data) > _MAX_LENIENT_BYTES:
            raise ValueError
        value = json.loads(data, parse_constant=_refuse_constant)
        encoded = json.dumps(value).encode()
        return _decode_batch(encoded) if batch else [_decoder.decode(encoded)]
    except msgspec.ValidationError as error:
        raise WireError(INVALID_REQUEST, f"not a JSON-RPC 2.0 message: {error}") from None
    except (ValueError, RecursionError):
        raise WireError(PARSE_ERROR, f"not valid JSON: {reason}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _check_text(data: bytes) -> None:
    """Raise WireError for invalid UTF-8, which would be detected too late in the parts that are not decoded."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise WireError(PARSE_ERROR, f"not valid UTF-8: {error.reason} at byte {error.start}") from None


def _check_depth(data: bytes) -> None:
    """Raise WireError for data nested so deep that the parser of a server may not survive it."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    depth = 0
    quoted = False
    for start in range(0, len(data), _DEPTH_SLICE_BYTES):
        steps = data[start : start + _DEPTH_SLICE_BYTES].translate(_BRACKET_STEPS, _NEITHER_BRACKET_NOR_QUOTE)
        # Two quotes in a row are a string without brackets, or the end of one string and the beginning of the next.
        parts = steps.replace(b'""', b"").split(b'"')
        outside = b"".join(parts[quoted::2])
        quoted ^= len(parts) % 2 == 0
        for position in range(0, len(outside), _DEPTH_STEPS):
            some = outside[position : position + _DEPTH_STEPS]
            opened = some.count(1)
            if depth + opened > MAX_DEPTH and depth + max(itertools.accumulate(memoryview(some).cast("b"))) > MAX_DEPTH:
                raise WireError(INVALID_REQUEST, f"nested deeper than {MAX_DEPTH} levels")
            depth += 2 * opened - len(some)


def _make_message(envelope: _Envelope) -> Message:
    if envelope.jsonrpc != "2.0":
        raise WireError(INVALID_REQUEST, 'not a JSON-RPC 2.0 message: "jsonrpc" must be "2.0"')
    if envelope.method is not UNSET:
        if envelope.id is UNSET:
            return Notification(envelope.method, envelope.params)
        if envelope.id is not None:
            return Request(envelope.id, envelope.method, envelope.params)
        raise WireError(INVALID_REQUEST, "the id of a request must be a string or an integer")
    has_result = bool(bytes(envelope.result))
    has_error = bool(bytes(envelope.error))
    if has_result == has_error or not isinstance(envelope.id, int | str):
        raise WireError(INVALID_REQUEST, "neither a request, nor a notification, nor a response")
    return Response(envelope.id, envelope.result, envelope.error if has_error else None)


def decode_object(raw: Raw, name: str = "params") -> Params:
    """Return the members of an object, each as raw bytes. The last one counts if a name occurs twice."""
    try:
        return _object_decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise WireError(INVALID_PARAMS, f"{name} must be an object") from None


def decode_value(raw: Raw, name: str, max_bytes: int | None = _MAX_VALUE_BYTES) -> Any:
    """Decode a raw value. Raise WireError if it is malformed or too large."""
    if max_bytes is not None and len(raw) > max_bytes:
        raise WireError(INVALID_PARAMS, f"{name} is larger than {max_bytes} bytes")
    try:
        return _any_decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(INVALID_PARAMS, f"{name} cannot be decoded: {error}") from None


def decode_text(params: Params, name: str) -> str:
    """Return a parameter that must be a string. Raise WireError if it is missing or of another type."""
    try:
        return _text_decoder.decode(params[name])
    except KeyError:
        raise WireError(INVALID_PARAMS, f"{name} is missing") from None
    except msgspec.DecodeError:
        raise WireError(INVALID_PARAMS, f"{name} must be a string") from None


def encode_result(id_: RequestId, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (msgspec.json.encode(id_), result)


def encode_request(id_: RequestId, method: str, params: bytes) -> bytes:
    head = msgspec.json.encode(method), msgspec.json.encode(id_)
    return b'{"jsonrpc":"2.0","method":%b,"id":%b,"params":%b}' % (*head, params)


def encode_notification(method: str, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (msgspec.json.encode(method), params)
