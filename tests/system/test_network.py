"""Detection of a machine without a route to the outside, and of an unreachable server."""

import asyncio
from pathlib import Path

import pytest

from rookery.system.network import explain_unreachable, has_default_route

HEAD = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
LOCAL = "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"
DEFAULT = "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\n"
DOWN = "eth0\t00000000\t010200C0\t0002\t0\t0\t0\t00000000\n"
ZEROS = "0" * 32
DEFAULT6 = f"{ZEROS} 00 {ZEROS} 00 fd000000000000000000000000000001 00000400 00000002 00000000 00000003 eth0\n"
REJECT6 = f"{ZEROS} 00 {ZEROS} 00 {ZEROS} ffffffff 00000001 00000000 00200200 lo\n"


@pytest.mark.parametrize(
    ("ipv4", "ipv6", "found"),
    [
        (HEAD + LOCAL + DEFAULT, "", True),
        (HEAD + LOCAL, DEFAULT6, True),
        (HEAD + LOCAL, REJECT6, False),
        (HEAD + DOWN, "", False),
        (HEAD, None, False),
        (None, None, True),
    ],
)
def test_a_route_to_the_outside_is_found(tmp_path: Path, ipv4: str | None, ipv6: str | None, found: bool) -> None:
    for name, text in (("ipv4", ipv4), ("ipv6", ipv6)):
        if text is not None:
            (tmp_path / name).write_text(text)
    assert has_default_route(tmp_path / "ipv4", tmp_path / "ipv6") is found


@pytest.mark.anyio
async def test_a_server_that_listens_is_reached_and_why_another_is_not_is_told() -> None:
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await explain_unreachable(f"http://127.0.0.1:{port}/v1") == ""
    assert "refused" in await explain_unreachable(f"http://127.0.0.1:{port}/v1")
    # A name that is never given to anybody.
    assert "nowhere.invalid" in await explain_unreachable("https://nowhere.invalid/v1")
    # In doubt it can be reached.
    assert await explain_unreachable("no address") == ""
