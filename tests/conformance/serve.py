"""`python -m tests.conformance.serve`: the fixture on a port of its own, which is printed."""

import asyncio
import signal

from rookery.wire.streamable import StreamableHttp
from tests.conformance.fixture import Fixture
from tests.support.wire import serving, without_token


async def serve() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    app = StreamableHttp(Fixture())
    async with serving(app, judge_of=without_token) as site:
        print(f"http://127.0.0.1:{site.port}/mcp", flush=True)
        await stop.wait()
        app.close()


if __name__ == "__main__":
    asyncio.run(serve())
