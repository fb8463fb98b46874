"""A view's record of one tool, for any definition that a server may send."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import Raw

from rookery.gateway.provider import CatalogEntry, CatalogProvider
from rookery.gateway.table import Table, Target

THEIRS = cast(CatalogProvider, SimpleNamespace(is_builtin=False, name="s"))


def target(members: bytes) -> Target:
    return Target(THEIRS, CatalogEntry("do", Raw(b'{"name":"do"%b}' % members)), "s__do")


@pytest.mark.parametrize(
    ("members", "schema"),
    [
        (b',"inputSchema":{"type":"object"}', {"type": "object"}),
        (b"", None),
        (b',"inputSchema":null', None),
        (b',"inputSchema":[]', None),
        (b',"inputSchema":{"maximum":1e999}', None),
    ],
)
def test_the_schema_of_a_tool_is_an_object_that_can_be_read_or_none(members: bytes, schema: Any) -> None:
    assert Table(tools={"s__do": target(members)}).input_schema("s__do") == schema


def test_only_a_tool_without_a_form_of_its_own_tells_errors_of_ours_as_data() -> None:
    for members in (b"", b',"outputSchema":null', b',"inputSchema":{"maximum":1e999}'):
        assert target(members).allows_error_content
    for members in (b',"outputSchema":{"type":"object"}', b',"outputSchema":{"maximum":1e999}'):
        assert not target(members).allows_error_content
