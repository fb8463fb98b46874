"""The cached client metadata of requests has no visible effect apart from speed."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rookery.wire.http.head import RequestHead
from rookery.wire.protocol import revisions
from rookery.wire.protocol.headers import HeaderDeclarations
from rookery.wire.protocol.messages import HEADER_MISMATCH, INVALID_PARAMS, Request, WireError
from rookery.wire.server import stateless
from tests.conformance.fixture import Fixture

_GOOD: dict[str, Any] = {revisions.META_VERSION: revisions.LATEST, revisions.META_CAPABILITIES: {}}
_HEAD = [(b"mcp-protocol-version", revisions.LATEST.encode()), (b"mcp-method", b"tools/list")]


def classified(meta: object, head: list[tuple[bytes, bytes]] = _HEAD) -> stateless.RequestEnvelope:
    request = Request(1, "tools/list", Raw(msgspec.json.encode({"_meta": meta})))
    return stateless.classify_request(request, RequestHead(head), Fixture(), HeaderDeclarations())[0]


def test_clients_that_say_different_things_are_told_apart() -> None:
    first = classified(_GOOD | {revisions.META_CLIENT: {"name": "one"}})
    second = classified(_GOOD | {revisions.META_CLIENT: {"name": "two"}})
    assert (first.client.info, second.client.info) == ({"name": "one"}, {"name": "two"})


def test_what_is_wrong_is_told_every_time_and_never_before_its_turn() -> None:
    meta: dict[str, Any] = _GOOD | {revisions.META_CAPABILITIES: []}
    for _ in range(3):
        with pytest.raises(WireError, match="clientCapabilities") as wrong:
            classified(meta)
        assert wrong.value.code == INVALID_PARAMS
        with pytest.raises(WireError, match="mcp-method") as mismatch:
            classified(meta, _HEAD[:1])
        assert mismatch.value.code == HEADER_MISMATCH


def test_headers_are_compared_however_often_the_body_has_been_seen() -> None:
    assert classified(_GOOD).version == revisions.LATEST
    with pytest.raises(WireError, match="mcp-protocol-version"):
        classified(_GOOD, [(b"mcp-protocol-version", b"2025-11-25"), _HEAD[1]])


def test_a_large_meta_is_read_but_not_kept() -> None:
    meta = _GOOD | {"com.example/large": "x" * 100_000}
    assert classified(meta) == classified(meta)
    assert classified(meta) is not classified(meta)
    assert classified(_GOOD) is classified(_GOOD)
