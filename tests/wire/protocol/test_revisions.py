"""The tables of methods and codes agree with the published schema."""

import mcp_types.jsonrpc
import mcp_types.methods
import mcp_types.version

from rookery.wire.protocol import messages, revisions


def test_the_revisions_are_all_that_are_published() -> None:
    assert tuple(mcp_types.version.KNOWN_PROTOCOL_VERSIONS) == revisions.ALL
    assert tuple(mcp_types.version.MODERN_PROTOCOL_VERSIONS) == revisions.MODERN
    assert mcp_types.version.LATEST_HANDSHAKE_VERSION == revisions.LATEST_HANDSHAKE


def test_each_revision_has_the_methods_of_its_schema() -> None:
    published = {method: set[str]() for method in revisions.ALL}
    for key in mcp_types.methods.CLIENT_REQUESTS:
        method, revision = sorted(key, key=lambda word: word in revisions.ALL)
        published[revision].add(method)
    assert {revision: set(methods) for revision, methods in revisions.CLIENT_REQUESTS.items()} == published


def test_what_may_be_cached_and_what_may_ask_is_as_published() -> None:
    assert set(mcp_types.methods.CACHEABLE_METHODS) == revisions.CACHEABLE_METHODS
    assert set(mcp_types.methods.INPUT_REQUIRED_METHODS) == revisions.INPUT_METHODS


def test_the_codes_of_errors_are_as_published() -> None:
    published = mcp_types.jsonrpc
    assert published.PARSE_ERROR == messages.PARSE_ERROR
    assert published.INVALID_REQUEST == messages.INVALID_REQUEST
    assert published.METHOD_NOT_FOUND == messages.METHOD_NOT_FOUND
    assert published.INVALID_PARAMS == messages.INVALID_PARAMS
    assert published.INTERNAL_ERROR == messages.INTERNAL_ERROR
    assert published.HEADER_MISMATCH == messages.HEADER_MISMATCH
    assert published.MISSING_REQUIRED_CLIENT_CAPABILITY == messages.MISSING_CAPABILITY
    assert published.UNSUPPORTED_PROTOCOL_VERSION == messages.UNSUPPORTED_VERSION
