"""Messages: what is decoded, what is relayed unchanged, and robustness against any input."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Raw

from rookery.system.clock import thread_cpu_seconds
from rookery.wire.protocol.headers import decode_header_value, encode_header_value
from rookery.wire.protocol.messages import (
    INVALID_REQUEST,
    MAX_BATCH,
    MAX_DEPTH,
    PARSE_ERROR,
    Notification,
    Request,
    Response,
    WireError,
    check_message,
    decode_messages,
    decode_object,
    encode_notification,
    encode_request,
    encode_result,
)
from rookery.wire.protocol.sealed_state import Seal
from tests.support.requirements import requirement
from tests.support.soak import repetitions, soak

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)
IDS = st.integers(-(2**53), 2**53) | st.text(max_size=20)


@requirement("wire.fields.kept")
def test_params_and_results_stay_the_bytes_they_came_as() -> None:
    raw = b'{"b":1.0,"a":123456789012345678901234567890,"a":2,"z":"\\u00e9","unknown":{"deep":[1e400]}}'
    (request,) = decode_messages(b'{"jsonrpc":"2.0","id":"x","method":"m","params":%b,"extra":1}' % raw)
    assert isinstance(request, Request)
    assert bytes(request.params) == raw
    (answer,) = decode_messages(b'{"jsonrpc":"2.0","id":"x","result":%b}' % raw)
    assert isinstance(answer, Response) and answer.error is None
    assert bytes(answer.result) == raw


@requirement("wire.jsonrpc.errors")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", PARSE_ERROR),
        (b"{", PARSE_ERROR),
        (b"nonsense", PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":NaN}', PARSE_ERROR),
        (b"\xff\xfe", PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        (b"3", INVALID_REQUEST),
        (b"{}", INVALID_REQUEST),
        (b'{"jsonrpc":"1.0","id":1,"method":"m"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', INVALID_REQUEST),
    ],
)
def test_what_is_no_message_gets_the_code_that_it_deserves(data: bytes, code: int) -> None:
    with pytest.raises(WireError) as caught:
        decode_messages(data)
    assert caught.value.code == code


@requirement("wire.limits.messages")
def test_limits_on_depth_and_batch_say_what_was_exceeded() -> None:
    deep = b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1)
    with pytest.raises(WireError, match=str(MAX_DEPTH)):
        decode_messages(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":%b}}' % deep)
    one = b'{"jsonrpc":"2.0","method":"m"}'
    assert len(decode_messages(b"[" + b",".join([one] * MAX_BATCH) + b"]")) == MAX_BATCH
    with pytest.raises(WireError, match=str(MAX_BATCH)):
        decode_messages(b"[" + b",".join([one] * (MAX_BATCH + 1)) + b"]")


def test_many_brackets_inside_a_string_are_not_depth() -> None:
    text = json.dumps('["\\' * 2000)
    (request,) = decode_messages(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"a":{text}}}}}'.encode())
    assert isinstance(request, Request)


@given(
    words=st.lists(
        st.sampled_from([b"[", b"{", b"]", b"}", b'"', b'"[[["', b"\\", b'\\"', b'""', b"1,", b"[[[[", b"]]]]"]),
        max_size=40,
    ),
    levels=st.integers(MAX_DEPTH - 12, MAX_DEPTH),
    padding=st.integers(0, 70_000),
)
def test_the_depth_is_that_of_the_brackets_outside_of_strings(words: list[bytes], levels: int, padding: int) -> None:
    # Escapes occur in strings only, or else it is no JSON and is refused whatever its depth.
    data = b'"' + b"x" * padding + b'"' + b"[" * levels + b"".join(words)
    if _escapes_outside_of_strings(data):
        return
    try:
        check_message(data)
    except WireError as error:
        assert _measure_depth(data) > MAX_DEPTH and str(MAX_DEPTH) in error.message
    else:
        assert _measure_depth(data) <= MAX_DEPTH


def _escapes_outside_of_strings(data: bytes) -> bool:
    return b"\\" in re.sub(rb'"(?:[^"\\]|\\.)*(?:"|$)', b"", data)


def _measure_depth(data: bytes) -> int:
    depth, deepest, quoted, escaped = 0, 0, False, False
    for byte in data:
        if escaped:
            escaped = False
        elif quoted:
            escaped, quoted = byte == 0x5C, byte != 0x22
        elif byte == 0x22:
            quoted = True
        else:
            depth += (byte in b"[{") - (byte in b"]}")
            deepest = max(deepest, depth)
    return deepest


@requirement("wire.limits.messages", "house.limits.shares")
@pytest.mark.parametrize(
    "pattern",
    [b"{},", b'{"a":[1,{"b":"c"}]},', b'"[",', b"[" * 400 + b"]" * 400 + b",", b'"\\"",'],
    ids=["objects", "tools", "strings", "deep", "escapes"],
)
def test_a_large_message_is_decoded_within_a_fraction_of_a_second(pattern: bytes) -> None:
    values = (pattern * (20_000_000 // len(pattern)))[:-1]
    for data, error in (
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[%b]}}' % values, None),
        (b"[%b]" % values, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[%b}}' % values, PARSE_ERROR),
    ):
        began = thread_cpu_seconds()
        try:
            decode_messages(data)
        except WireError as caught:
            assert caught.code == error
        else:
            assert error is None
        assert thread_cpu_seconds() - began < 0.8


@given(id_=IDS, method=st.text(max_size=30), params=st.dictionaries(st.text(), JSON))
def test_what_is_written_is_read_back_the_same(id_: int | str, method: str, params: dict[str, Any]) -> None:
    data = json.dumps(params).encode()
    (request,) = decode_messages(encode_request(id_, method, data))
    assert isinstance(request, Request)
    assert (request.id, request.method, json.loads(bytes(request.params))) == (id_, method, params)
    (notification,) = decode_messages(encode_notification(method, data))
    assert isinstance(notification, Notification) and notification.method == method
    (answer,) = decode_messages(encode_result(id_, data))
    assert isinstance(answer, Response) and json.loads(bytes(answer.result)) == params


@soak
@requirement("wire.limits.messages")
@settings(max_examples=repetitions(100, 500))
@given(data=st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_input_does_more_than_be_refused(data: bytes) -> None:
    try:
        messages = decode_messages(data)
    except WireError as error:
        assert error.code in (PARSE_ERROR, INVALID_REQUEST)
        assert json.loads(error.encode(None))["id"] is None
        return
    for message in messages:
        if isinstance(message, Request | Notification):
            try:
                decode_object(message.params)
            except WireError as error:
                assert error.code == -32602


@given(text=st.text())
def test_a_header_value_survives_as_what_it_was(text: str) -> None:
    encoded = encode_header_value(text)
    assert encoded.isascii() and "\n" not in encoded and encoded == encoded.strip()
    assert decode_header_value(encoded) == text


@given(answers=st.dictionaries(st.text(), JSON), place=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_a_sealed_state_opens_unchanged_and_only_unchanged(answers: dict[str, Any], place: int, flip: int) -> None:
    seal = Seal()
    carried = {key: Raw(json.dumps(value).encode()) for key, value in answers.items()}
    text = seal.seal(carried, "call")
    assert seal.unseal(text, "call") == carried
    changed = bytearray(text.encode())
    changed[place % len(changed)] = (changed[place % len(changed)] ^ flip) % 128
    if bytes(changed) != text.encode():
        with pytest.raises(WireError):
            seal.unseal(changed.decode(), "call")
    with pytest.raises(WireError):
        seal.unseal(text, "another call")
    with pytest.raises(WireError):
        Seal().unseal(text, "call")
