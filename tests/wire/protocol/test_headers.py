"""Headers that repeat arguments of a call."""

import pytest

from rookery.wire.http.head import RequestHead
from rookery.wire.protocol.headers import check_parameters
from rookery.wire.protocol.messages import WireError
from tests.support.requirements import requirement


@requirement("wire.modern.discover")
def test_a19_a_number_with_more_digits_than_can_be_converted_is_a_mismatch() -> None:
    parameters = [(("count",), "Count", "integer")]
    head = RequestHead([(b"mcp-param-count", b"7")])
    check_parameters(head, parameters, {"count": 7})
    head = RequestHead([(b"mcp-param-count", b"1" * 5000)])
    with pytest.raises(WireError, match="does not match the argument count"):
        check_parameters(head, parameters, {"count": 7})
