"""JSON-RPC messages.

Only the envelope is decoded. Params, results and errors stay the bytes that were received.
"""

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


class WireError(Exception):
    """An error that is sent to the peer as a JSON-RPC error: a fault of the peer, or a refusal."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data

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


_decoder = msgspec.json.Decoder(_Envelope)
_batch_decoder = msgspec.json.Decoder(list[_Envelope])
_object_decoder = msgspec.json.Decoder(Params)
_text_decoder = msgspec.json.Decoder(str)
_any_decoder = msgspec.json.Decoder()


def decode_messages(data: bytes) -> list[Message]:
    """Return the messages in one body or line. The list has several items only for a batch."""
    batch = data.lstrip()[:1] == b"["
    check_message(data)
    try:
        if not batch:
            return [_make_message(_decoder.decode(data))]
        envelopes = _batch_decoder.decode(data)
    except msgspec.ValidationError as error:
        raise WireError(INVALID_REQUEST, f"not a JSON-RPC 2.0 message: {error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        envelopes = _decode_leniently(data, batch, str(error))
    if batch and not 0 < len(envelopes) <= MAX_BATCH:
        raise WireError(INVALID_REQUEST, f"a batch holds between 1 and {MAX_BATCH} messages, not {len(envelopes)}")
    return [_make_message(envelope) for envelope in envelopes]


def check_message(data: bytes) -> None:
    """Raise WireError for invalid UTF-8 or deep nesting, which decoding the envelope alone does not detect."""
    if not data.isascii():
        _check_text(data)
    if len(data) > MAX_DEPTH and data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        _check_depth(data)


def _decode_leniently(data: bytes, batch: bool, reason: str) -> list[_Envelope]:
    """Re-encode valid JSON that the fast parser refuses, such as half a surrogate pair, and decode it again."""
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
        encoded = json.dumps(value).encode()
        return _batch_decoder.decode(encoded) if batch else [_decoder.decode(encoded)]
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
    depth, quoted, escaped = 0, False, False
    for byte in data:
        if escaped:
            escaped = False
        elif quoted:
            escaped = byte == 0x5C
            quoted = byte != 0x22
        elif byte == 0x22:
            quoted = True
        elif byte in (0x5B, 0x7B):
            depth += 1
            if depth > MAX_DEPTH:
                raise WireError(INVALID_REQUEST, f"nested deeper than {MAX_DEPTH} levels")
        elif byte in (0x5D, 0x7D):
            depth -= 1


def _make_message(envelope: _Envelope) -> Message:
    if envelope.jsonrpc != "2.0":
        raise WireError(INVALID_REQUEST, 'not a JSON-RPC 2.0 message: "jsonrpc" must be "2.0"')
    if envelope.method is not UNSET:
        if envelope.id is UNSET:
            return Notification(envelope.method, envelope.params)
        if envelope.id is not None:
            return Request(envelope.id, envelope.method, envelope.params)
        raise WireError(INVALID_REQUEST, "the id of a request must be a string or an integer")
    has_result, has_error = bool(bytes(envelope.result)), bool(bytes(envelope.error))
    if has_result == has_error or not isinstance(envelope.id, int | str):
        raise WireError(INVALID_REQUEST, "neither a request, nor a notification, nor a response")
    return Response(envelope.id, envelope.result, envelope.error if has_error else None)


def decode_object(raw: Raw, name: str = "params") -> Params:
    """Return the members of an object, each as raw bytes. The last one counts if a name occurs twice."""
    try:
        return _object_decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise WireError(INVALID_PARAMS, f"{name} must be an object") from None


def decode_value(raw: Raw, name: str) -> Any:
    """Decode a raw value. Raise WireError if it is malformed."""
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
