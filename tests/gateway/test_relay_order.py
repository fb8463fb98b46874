"""Messages before a result or an error keep their order, and a slow client uses bounded memory."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from rookery.gateway.relay import Relay
from rookery.wire.protocol.messages import Notification
from rookery.wire.protocol.provider import ClientProfile
from rookery.wire.protocol.sealed_state import Seal
from rookery.wire.server.call import RunningCall
from tests.support.gateway.gateway import start_gateway
from tests.support.mcp.caller import ERAS, HANDSHAKE, MODERN, failure
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

OLD = ClientProfile(HANDSHAKE, {}, {})


@requirement("hub.catalog.primitives")
@pytest.mark.parametrize("ends", ["an error", "a lost server"])
@pytest.mark.parametrize("era", ERAS)
async def test_what_was_said_before_a_call_failed_reaches_the_caller_all_the_same(era: str, ends: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller("/mcp", era)
        meta: Any = {"io.modelcontextprotocol/logLevel": "info"} if era == MODERN else {}
        running = caller.begin("one__hold", **meta)
        one = await gateway.scripted.comes("one")
        request = await one.called("hold")
        for number in range(20):
            one.tell("notifications/message", level="info", data=number)
        if ends == "an error":
            one.refuse(request, -32000, "no")
            assert (await running)["error"]["message"] == "no"
        else:
            one.order(exit=3)
            assert failure(await running) == "upstream-failed"
        assert [message["params"]["data"] for message in caller.all("notifications/message")] == list(range(20))


@pytest.mark.parametrize(("size", "said", "kept"), [(1_000_000, 20, 4), (10, 1_500, 1_000), (10_000_000, 5, 1)])
async def test_of_what_a_client_does_not_take_only_so_much_waits_and_the_rest_is_counted(
    size: int, said: int, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[bytes] = []
    go = asyncio.Event()

    async def send(message: bytes) -> None:
        await go.wait()
        taken.append(message[-20:])

    relay = Relay(RunningCall(1, "tools/call", {}, {}, OLD, "debug", send, Seal(), "owner"), Path("/"))
    data = "x" * size

    async def work() -> str:
        for number in range(said):
            params = b'{"level":"info","data":"%b","n":%d}' % (data.encode(), number)
            relay.on_notification(Notification("notifications/message", Raw(params)))
            # The first is being sent from now on, and waits no more.
            await asyncio.sleep(0)
        go.set()
        return "done"

    assert await relay.run(work()) == "done"
    last = [int(message.split(b":")[-1].rstrip(b"}")) for message in taken]
    assert last == [0, *range(said - kept, said)]
    assert [f"{said - kept - 1} notifications" in record.message for record in caplog.records] == [True]
