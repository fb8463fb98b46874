"""A list in pages is bounded in length and memory."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import Raw

from rookery.system.errors import RookeryError
from rookery.wire.client.client import fetch_all_pages

pytestmark = pytest.mark.anyio
PAGE = b'{"tools": ["%b"]' % (b"x" * (8 * 1024 * 1024 - 100))


async def test_a_list_of_large_pages_is_given_up_at_a_size_that_is_named() -> None:
    asked = 0

    async def ask(params: Mapping[str, Any], left: float) -> Raw:
        nonlocal asked
        asked += 1
        return Raw(PAGE + b', "nextCursor": "%d"}' % asked)

    with pytest.raises(RookeryError, match="tools/list: the list is longer than 64 MiB"):
        await fetch_all_pages(ask, "tools/list", "tools", 60.0)
    assert asked == 9
