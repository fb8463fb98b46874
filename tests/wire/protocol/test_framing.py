"""Splitting the output of a server into messages."""

import pytest

from rookery.wire.protocol.framing import MessageDecoder
from tests.support.requirements import requirement


@requirement("wire.client.framing")
def test_an_end_in_the_middle_of_a_frame_is_named_as_that() -> None:
    messages: list[bytes] = []
    decoder = MessageDecoder("content-length", messages.append, lambda noise: None)
    decoder.feed(b"Content-Length: 2\r\n\r\n{}Content-Length: 200\r\n\r\n{")
    assert messages == [b"{}"]
    with pytest.raises(ValueError, match="ended in the middle of a Content-Length frame"):
        decoder.end()
