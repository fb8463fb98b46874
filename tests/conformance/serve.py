"""`python -m tests.conformance.serve [handshake|modern]`: serve the fixture on a port, and print the port."""

import asyncio
import signal
import sys

from rookery.wire.server.streamable import StreamableHttp
from tests.conformance.fixture import Fixture
from tests.conformance.one_era import service
from tests.support.http.listener import start_listener, without_token


async def serve() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    fixture = Fixture()
    app = StreamableHttp(fixture, service=service(fixture, sys.argv[1] if len(sys.argv) > 1 else None))
    async with start_listener(app, judge_of=without_token) as site:
        print(f"http://127.0.0.1:{site.port}/mcp", flush=True)
        await stop.wait()
        app.close()


if __name__ == "__main__":
    asyncio.run(serve())
