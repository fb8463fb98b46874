"""The wire is tested on both event loops."""

from typing import Any

import pytest


@pytest.fixture(
    scope="session",
    params=[("asyncio", {"use_uvloop": False}), ("asyncio", {"use_uvloop": True})],
    ids=["asyncio", "uvloop"],
)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param
