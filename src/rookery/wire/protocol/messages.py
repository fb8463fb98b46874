"""JSON-RPC messages. Only the envelope is decoded; params, results and errors stay the bytes they came as."""

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

Id = int | str
Params = dict[str, Raw]

MAX_BATCH = 100
MAX_DEPTH = 512
EMPTY = Raw(b"{}")


class WireError(Exception):
    """An error to be answered as such: the peer's fault, or a refusal."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data

    def encoded(self, id_: Id | None) -> bytes:
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return msgspec.json.encode({"jsonrpc": "2.0", "id": id_, "error": error})


class Request(msgspec.Struct, frozen=True, gc=False):
    id: Id
    method: str
    params: Raw


class Notification(msgspec.Struct, frozen=True, gc=False):
    method: str
    params: Raw


class Response(msgspec.Struct, frozen=True, gc=False):
    """An answer of either kind: `error` is None where `result` counts."""

    id: Id
    result: Raw
    error: Raw | None


Message = Request | Notification | Response


class _Envelope(msgspec.Struct, gc=False):
    jsonrpc: str | UnsetType = UNSET
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw = EMPTY
    result: Raw = Raw()
    error: Raw = Raw()


_decoder = msgspec.json.Decoder(_Envelope)
_batch_decoder = msgspec.json.Decoder(list[_Envelope])
_object_decoder = msgspec.json.Decoder(Params)
_text_decoder = msgspec.json.Decoder(str)
_any_decoder = msgspec.json.Decoder()


def decode(data: bytes) -> list[Message]:
    """The messages in one body or line; a list of more than one only where it was a batch."""
    batch = data.lstrip()[:1] == b"["
    check(data)
    try:
        if not batch:
            return [_message(_decoder.decode(data))]
        envelopes = _batch_decoder.decode(data)
    except msgspec.ValidationError as error:
        raise WireError(INVALID_REQUEST, f"not a JSON-RPC 2.0 message: {error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        envelopes = _second_chance(data, batch, str(error))
    if batch and not 0 < len(envelopes) <= MAX_BATCH:
        raise WireError(INVALID_REQUEST, f"a batch holds between 1 and {MAX_BATCH} messages, not {len(envelopes)}")
    return [_message(envelope) for envelope in envelopes]


def check(data: bytes) -> None:
    """Refuse what would not be noticed where only the envelope is decoded."""
    if not data.isascii():
        _check_text(data)
    if len(data) > MAX_DEPTH and data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        _check_depth(data)


def _second_chance(data: bytes, batch: bool, reason: str) -> list[_Envelope]:
    """What JSON allows and the fast parser refuses, such as half a surrogate pair, is written anew and tried again."""
    try:
        found = json.loads(data, parse_constant=_no_constant)
        again = json.dumps(found).encode()
        return _batch_decoder.decode(again) if batch else [_decoder.decode(again)]
    except msgspec.ValidationError as error:
        raise WireError(INVALID_REQUEST, f"not a JSON-RPC 2.0 message: {error}") from None
    except (ValueError, RecursionError):
        raise WireError(PARSE_ERROR, f"not valid JSON: {reason}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _check_text(data: bytes) -> None:
    """What stays unread would be noticed too late."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise WireError(PARSE_ERROR, f"not valid UTF-8: {error.reason} at byte {error.start}") from None


def _check_depth(data: bytes) -> None:
    """Refuse what is nested so deep that a parser behind us may not survive it."""
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


def _message(found: _Envelope) -> Message:
    if found.jsonrpc != "2.0":
        raise WireError(INVALID_REQUEST, 'not a JSON-RPC 2.0 message: "jsonrpc" must be "2.0"')
    if found.method is not UNSET:
        if found.id is UNSET:
            return Notification(found.method, found.params)
        if found.id is not None:
            return Request(found.id, found.method, found.params)
        raise WireError(INVALID_REQUEST, "the id of a request must be a string or an integer")
    has_result, has_error = bool(bytes(found.result)), bool(bytes(found.error))
    if has_result == has_error or not isinstance(found.id, int | str):
        raise WireError(INVALID_REQUEST, "neither a request, nor a notification, nor an answer")
    return Response(found.id, found.result, found.error if has_error else None)


def object_of(raw: Raw, what: str = "params") -> Params:
    """The members of an object, each still as it came; a name that stands twice counts as its last."""
    try:
        return _object_decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise WireError(INVALID_PARAMS, f"{what} must be an object") from None


def value_of(raw: Raw, what: str) -> Any:
    """A value that was relayed unread until now."""
    try:
        return _any_decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(INVALID_PARAMS, f"{what} cannot be read: {error}") from None


def text_of(params: Params, name: str) -> str:
    """A string that a decision is based on."""
    try:
        return _text_decoder.decode(params[name])
    except KeyError:
        raise WireError(INVALID_PARAMS, f"{name} is missing") from None
    except msgspec.DecodeError:
        raise WireError(INVALID_PARAMS, f"{name} must be a string") from None


def encode_result(id_: Id, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (msgspec.json.encode(id_), result)


def encode_request(id_: Id, method: str, params: bytes) -> bytes:
    head = msgspec.json.encode(method), msgspec.json.encode(id_)
    return b'{"jsonrpc":"2.0","method":%b,"id":%b,"params":%b}' % (*head, params)


def encode_notification(method: str, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (msgspec.json.encode(method), params)
